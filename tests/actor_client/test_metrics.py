"""Tests the metrics of an actor over real sockets."""

import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path

import pytest

from actor_client import serving
from actor_client.connection.books import ActorSnapshot, BooksView
from actor_client.counts import (
    OTHER,
    RECONNECT_REASONS,
    WAIT_REASONS,
    ConnectionCounts,
    RolloutCounts,
    count,
)
from actor_client.exits import ActorError, ExitCode
from actor_client.metrics import ActorBuild, ActorMetrics
from actor_client.serving import MAX_CONNECTIONS, MetricsServer
from tests.actor_client.scripted import wait_until
from tests.exposition import samples

BUILD = ActorBuild("0.1.0", "abc", "CartPole-v1")


def of(snapshot: ActorSnapshot, name: str, **labels: str) -> float:
    """Returns one sample of an actor."""
    text = ActorMetrics(BUILD, lambda: snapshot).exposition()
    return samples(text)[f"rollcast_actor_{name}", tuple(sorted(labels.items()))]


def get(port: int, path: str) -> tuple[int, bytes]:
    """Returns status and body of a request."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opened."""
    with ExitStack() as stack:
        yield stack


def served(stack: ExitStack, port: int = 0, *, is_well: bool = True, may_move: bool = False) -> MetricsServer:
    """Starts a server of an actor that did nothing yet."""
    metrics = ActorMetrics(BUILD, ActorSnapshot)
    server = MetricsServer("127.0.0.1", port, metrics=metrics.exposition, is_well=lambda: is_well, may_move=may_move)
    stack.callback(server.close)
    return server


def test_a_scrape_has_everything(stack: ExitStack) -> None:
    """A scrape over HTTP is valid and has the metrics of the process."""
    status, body = get(served(stack).port, "/metrics")
    names = {name for name, _ in samples(body)}
    assert status == 200
    assert {"rollcast_actor_env_steps_total", "process_cpu_seconds_total", "python_gc_collections_total"} <= names


def test_other_paths_are_not_found(stack: ExitStack) -> None:
    """Unknown paths return 404; a query is ignored."""
    port = served(stack).port
    paths = ("/", "/metricsx", "/metrics/", "/healthz/x", "/../etc/passwd", "/metrics?name=x")
    assert [get(port, path)[0] for path in paths] == [404] * 5 + [200]


@pytest.mark.parametrize(("is_well", "status"), [(True, 200), (False, 503)])
def test_health_is_that_of_the_stepping_thread(stack: ExitStack, is_well: bool, status: int) -> None:
    """`/healthz` fails if the stepping thread is stuck."""
    assert get(served(stack, is_well=is_well).port, "/healthz")[0] == status


def test_a_token_opens_the_metrics(stack: ExitStack, tmp_path: Path) -> None:
    """With a token file, metrics need its present token, and health needs none."""
    first, second = "first-token-of-the-metrics", "second-token-of-the-metrics"
    file = tmp_path / "token"
    file.write_text(first + "\n")
    server = MetricsServer("127.0.0.1", 0, metrics=lambda: b"told", is_well=lambda: True, token_file=file)
    stack.callback(server.close)

    def told(*headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        with closing(connection):
            connection.putrequest("GET", "/metrics")
            for header in headers:
                connection.putheader("Authorization", header)
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
        assert (body == b"told") is (answer.status == HTTPStatus.OK)
        return answer.status

    assert told(f"Bearer {first}") == HTTPStatus.OK
    for wrong in ((), ("Bearer",), (f"Basic {first}",), (f"Bearer {second}",), (f"Bearer {first}",) * 2):
        assert told(*wrong) == HTTPStatus.UNAUTHORIZED
    file.write_text(second)
    assert told(f"Bearer {second}") == HTTPStatus.OK
    assert told(f"Bearer {first}") == HTTPStatus.UNAUTHORIZED
    file.unlink()
    assert told(f"Bearer {second}") == HTTPStatus.UNAUTHORIZED
    assert get(server.port, "/healthz")[0] == HTTPStatus.OK


def test_a_taken_port_is_replaced_unless_it_was_asked_for(stack: ExitStack) -> None:
    """A requested port that is taken, or of another machine, ends the actor and names the next step; a default one moves."""
    taken = served(stack).port
    with pytest.raises(ActorError, match=f"127.0.0.1:{taken}.*--metrics-address") as caught:
        served(stack, taken)
    assert caught.value.exit_code is ExitCode.PORT_IN_USE
    moved = served(stack, taken, may_move=True)
    assert moved.port not in {0, taken}
    with pytest.raises(ActorError) as caught:
        MetricsServer("192.0.2.1", 0, metrics=bytes, is_well=lambda: True)
    assert caught.value.exit_code is ExitCode.PORT_IN_USE
    moved.close()
    with closing(socket.socket()) as other:  # closing gives the port back
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", moved.port))


def test_garbage_and_silence_harm_nobody(stack: ExitStack) -> None:
    """Connections that send garbage or nothing do not block other requests."""
    port = served(stack).port
    for text in (b"", b"\x00\xff\n\n", b"GET\r\n\r\n", b"POST /metrics HTTP/1.1\r\nContent-Length: 99\r\n\r\n"):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        connection.sendall(text)
    assert get(port, "/metrics")[0] == 200


def test_strangers_take_no_more_than_some_threads(stack: ExitStack) -> None:
    """Connections above the limit are closed; once others end, the port answers again."""
    port = served(stack).port
    before = threading.active_count()
    held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(MAX_CONNECTIONS)]
    for _ in range(3 * MAX_CONNECTIONS):
        with socket.create_connection(("127.0.0.1", port), 10) as late:
            assert late.recv(1) == b""
    assert threading.active_count() - before <= MAX_CONNECTIONS
    for connection in held:
        connection.close()
    wait_until(lambda: answers(port))


def test_a_trickle_is_cut_off(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that sends a request too slowly is closed."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.5)
    port = served(stack).port
    held = {stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(MAX_CONNECTIONS)}

    def are_closed() -> bool:
        for connection in list(held):
            try:
                connection.sendall(b"G")
            except OSError:
                held.discard(connection)
        return not held

    wait_until(are_closed)
    wait_until(lambda: answers(port))


def answers(port: int) -> bool:
    """Returns whether the port answers; it closes connections above its limit."""
    try:
        return get(port, "/healthz")[0] == 200
    except OSError:
        return False


def test_all_words_are_there_from_the_start() -> None:
    """Every value of every label has a series with value zero."""
    found = samples(ActorMetrics(BUILD, ActorSnapshot).exposition())
    for name, label, words in (
        ("wait_seconds_total", "reason", WAIT_REASONS),
        ("reconnects_total", "reason", RECONNECT_REASONS),
        ("episodes_total", "end", ("terminated", "truncated", "env_error")),
        ("policy_swaps_total", "outcome", ("ok", "bad_digest", "load_failed", "superseded")),
        ("steps_discarded_total", "reason", ("env_error", "generation", "session_lost")),
        ("steps_dropped_total", "reason", ("generation", "session_lost", "too_large")),
        ("connected", "stream", ("upload", "policy")),
        ("held", "reason", ("updating", "paused", "behind", "draining", "lockstep")),
    ):
        for word in words:
            assert found[f"rollcast_actor_{name}", ((label, word),)] == 0


def test_the_books_balance_in_a_scrape() -> None:
    """Produced steps are open, discarded, dropped, unacked or acked; unknown reasons count as `other`."""
    books = BooksView(
        produced=100, open=10, discarded={"env_error": 5, "odd": 1}, dropped={"generation": 4}, unacked=20, acked=60
    )
    found = samples(ActorMetrics(BUILD, lambda: ActorSnapshot(books=books)).exposition())
    fates = sum(
        number
        for (name, _), number in found.items()
        if name.removeprefix("rollcast_actor_steps_")
        in {"open", "discarded_total", "dropped_total", "unacked", "acked_total"}
    )
    assert books.balanced
    assert found["rollcast_actor_steps_produced_total", ()] == fates == 100
    assert found["rollcast_actor_steps_discarded_total", (("reason", OTHER),)] == 1


def test_counts_of_both_threads_are_shown() -> None:
    """Counts of the stepping thread and of the connection are shown together."""
    rollout, connection = RolloutCounts(), ConnectionCounts()
    rollout.env_steps, rollout.swaps = 64, 2
    rollout.wait_seconds["hold"] = 1.5
    rollout.act_seconds.add(0.0002)
    count(rollout.chunks_dropped, "too_large")
    count(connection.chunks_dropped, "too_large", 2)
    count(connection.reconnects, "nobody_knows")
    connection.policies_bad = 1
    now = ActorSnapshot(rollout, connection, held=frozenset({"paused"}), is_uploading=True, policy_version=7)
    assert of(now, "env_steps_total") == 64
    assert of(now, "wait_seconds_total", reason="hold") == rollout.waited_seconds == 1.5
    assert of(now, "act_seconds_count") == 1
    assert of(now, "chunks_dropped_total", reason="too_large") == 3
    assert of(now, "reconnects_total", reason=OTHER) == 1
    assert of(now, "policy_swaps_total", outcome="ok") == 2
    assert of(now, "policy_swaps_total", outcome="bad_digest") == 1
    assert of(now, "held", reason="paused") == of(now, "connected", stream="upload") == 1
    assert of(now, "policy_version") == 7
