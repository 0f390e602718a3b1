"""Tries a learner by the rules, and reports what became of each."""

import itertools
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

import grpc
from rollcast.channels import channel_options
from rollcast.errors import WireError
from rollcast.text import printable

from actor_client.conform.player import Ended, Player
from actor_client.conform.rules import RULES, Broken, NotTried, Rule, Trial
from actor_client.connection.errors import fatal
from actor_client.endings import run_command
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.conform import ConformSettings
from actor_client.settings.loading import load

CONNECT_SECONDS: Final = 10.0
_SHOWN_BYTES: Final = 512


class Verdict(NamedTuple):
    """What became of a rule.

    Attributes:
        rule: The rule.
        outcome: `pass`, `fail` or `not tried`.
        why: What the learner did, or why the rule was not tried; empty for a rule that it keeps.
        sent: Bytes of the last message before a fault.
    """

    rule: Rule
    outcome: str
    why: str = ""
    sent: bytes = b""

    def lines(self) -> str:
        """Returns the verdict as text."""
        text = f"{self.rule.number:6} {self.outcome:9} {self.rule.text}\n"
        if self.why:
            text += f"       {self.why}\n"
        if self.sent:
            more = f" ... ({len(self.sent)} bytes)" if len(self.sent) > _SHOWN_BYTES else ""
            text += f"       sent {self.sent[:_SHOWN_BYTES].hex()}{more}\n"
        return text


def run_conform(flags: Mapping[str, object]) -> ExitCode:
    """Tries a learner; the exit code is 30 if it breaks a rule."""
    settings = load(ConformSettings, flags)

    def act() -> None:
        _check_reached(settings)
        broken = 0
        for verdict in verdicts(settings):
            sys.stdout.write(verdict.lines())
            broken += verdict.outcome == "fail"
        sys.stdout.write(f"{len(RULES)} rules; protos/README.md has more, which are not tried\n")
        if broken:
            raise ActorError(
                ExitCode.NOT_A_LEARNER,
                f"the learner at {settings.learner} breaks {broken} of {len(RULES)} rules; protos/README.md has them",
            )

    return run_command(act, settings)


def verdicts(settings: ConformSettings, rules: Sequence[Rule] = RULES) -> Iterator[Verdict]:
    """Tries rules, each with sessions of its own under other names, and yields what became of them."""
    numbers, run = itertools.count(1), secrets.token_hex(4)
    players: list[Player] = []

    def join() -> Player:
        name = f"conform-{run}-{next(numbers)}"
        players.append(Player(settings.learner, settings.security, name, settings.behavior or ""))
        return players[-1]

    trial = Trial(join)
    for rule in rules:
        try:
            yield _tried(rule, trial, players)
        finally:
            for player in players:
                trial.errors += player.errors
                with suppress(WireError):
                    player.close()
                player.leave()
            players.clear()


def _tried(rule: Rule, trial: Trial, players: list[Player]) -> Verdict:
    try:
        rule.check(trial)
    except NotTried as reason:
        return Verdict(rule, "not tried", str(reason))
    except Broken as fault:
        why = str(fault)
    except Ended:
        why = "the stream ended without an answer"
    except WireError as error:
        why = f"{error.reason or error.code.name}: {error.message}"
    else:
        return Verdict(rule, "pass")
    return Verdict(rule, "fail", printable(why), players[-1].sent if players else b"")


def _check_reached(settings: ConformSettings) -> None:
    """Checks that there is a learner, which takes this actor.

    Raises:
        ActorError: There is none, or it does not.
    """

    def end(code: ExitCode, text: str) -> NoReturn:
        raise ActorError(code, f"the learner at {settings.learner} {text}") from None

    channel = settings.security.sync_channel(settings.learner, channel_options())
    try:
        seconds = settings.connect_timeout or CONNECT_SECONDS
        grpc.channel_ready_future(channel).result(seconds)
    except grpc.FutureTimeoutError:
        end(ExitCode.UNREACHABLE, f"did not answer within {seconds:g} s")
    finally:
        channel.close()
    player = Player(settings.learner, settings.security, f"conform-{secrets.token_hex(4)}", settings.behavior or "")
    try:
        behaviors = player.open().behaviors
        if not player.behavior or (settings.behavior is None and len(behaviors) > 1):
            end(
                ExitCode.USAGE,
                f"has the behaviors {', '.join(behaviors) or 'of its actors'}; choose one with --behavior NAME",
            )
        player.close()
    except WireError as error:
        raise fatal(error, opening=True) or ActorError(ExitCode.REFUSED, printable(error.message)) from None
    finally:
        player.leave()
