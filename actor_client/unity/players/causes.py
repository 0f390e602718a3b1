"""What users read when a player fails: what happened, its usual causes, and where to look. Each is one line."""

from pathlib import Path


def never_connected(seconds: float, port: int, log: Path | None) -> str:
    """Says that a player runs and has not called.

    Args:
        seconds: How long it was waited for.
        port: Where.
        log: Of the player.
    """
    return (
        f"has not called port {port} within {seconds:g} s. Usual causes: it was built without ML-Agents, or its scene has "
        "no agent; another port (--mlagents-port among --env-args); it needs graphics that are not there "
        "(try --no-graphics), or needs them and was started with --no-graphics; it takes longer to load (raise "
        f"--timeout-wait){_see(log)}"
    )


def fell_silent(seconds: float, log: Path | None) -> str:
    """Says that a player which has called sends nothing more.

    Args:
        seconds: How long it was waited for.
        log: Of the player.
    """
    return (
        f"is connected, and has sent nothing for {seconds:g} s. Usual causes: no agent asks for decisions (add a "
        "DecisionRequester to it, or call RequestDecision); Behavior Type is Heuristic Only or Inference Only, where it "
        "must be Default; it hangs, or was stopped; it needs graphics that are not there (try --no-graphics), or needs "
        "them and was started with --no-graphics; a scene takes longer to load, or a step to simulate (raise "
        f"--timeout-wait){_see(log)}"
    )


def ended(how: str, last_words: str, log: Path | None, *, has_called: bool, said_so: bool) -> str:
    """Says that a player's process has ended.

    Args:
        how: Exit code or signal, in words.
        last_words: The last line it wrote, if any.
        log: Of the player.
        has_called: It was connected.
        said_so: It closed the connection first, as a player does that quits by itself.
    """
    when = "quit by itself: it closed the connection and " if said_so else "" if has_called else "never connected: it "
    words = f"; its last output: {last_words}" if last_words else ""
    return f"{when}{how}{words}{_see(log)}"


def lingers(seconds: float, log: Path | None) -> str:
    """Says that a player closed the connection, and its process goes on.

    Args:
        seconds: How long it was waited for.
        log: Of the player.
    """
    return f"closed the connection, and its process went on for {seconds:g} s{_see(log)}"


def _see(log: Path | None) -> str:
    return f". See {log}" if log is not None else ""
