"""Files from elsewhere: demonstrations, checkpoints, run files, token files, join codes, and those of a run folder."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import io
import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rollcast.auth import MAX_SESSIONS, JoinCode, parse_tokens, token_hash
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.reading import check_demonstrations, read_demonstration
from rollcast.tls import IdentityError, check_pair, read_token

from actor_client.exits import ActorError
from actor_client.joining import join
from learner.service.identity.access import Access
from learner.service.identity.authority import AUTHORITY_KEY, Authority, hosts_of
from learner.service.ingest.snapshots import snapshot
from learner.service.web.operator_token import token_from_file
from learner.shared.exits import UserError
from learner.shared.observe.address import read_addresses
from learner.shared.observe.curves import read_curves
from learner.shared.observe.summary import best_returns
from learner.shared.runfolder import runfolder
from learner.shared.runfolder.choice import read_behavior
from learner.shared.runfolder.documents import BadCheckpoint, encode_document, plain
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import encode_behavior, read_run_state
from learner.shared.settings.addresses import AUTHORITY, SERVER_CERT
from learner.shared.settings.load import effective_document, load_run_options, to_yaml
from learner.start.list_runs import _last_event
from learner.training.buffers.replay_file import BadReplay, read_replay
from tests.learner.service.calls.harness import Learner
from tests.learner.service.calls.samples import make_policy
from tests.protos.demonstrations.recordings import AXIS, demonstration, record
from tests.tools.fuzz.service import Service, options
from tests.tools.fuzz.target import MIB, Target


@functools.cache
def _folder() -> Path:
    """Returns a folder of this process, in memory where there is such a place."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it has a name of its own
    folder = Path(tempfile.mkdtemp(prefix="rollcast-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(data: bytes, name: str) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _demonstration(data: bytes) -> None:
    path = _file(data, "recording.demo")
    found = read_demonstration(path, AXIS, max_bytes=4 * MIB)
    assert len(found.rows) == len(found.rewards) == len(found.next_rows)
    check_demonstrations(path)


def _demonstrations() -> dict[str, bytes]:
    path = _folder() / "seed.demo"
    records = [record(float(n), axes=[0.5], reward=1.0, id=3) for n in range(3)] + [
        record(4.0, done=True, axes=[0.5], id=3)
    ]
    return {
        "whole": demonstration(path, AXIS, records).read_bytes(),
        "unfinished": demonstration(path, AXIS, records, announced=0).read_bytes(),
    }


def _checkpoint(data: bytes) -> None:
    found = read_behavior(_file(data, "checkpoint.pt"))
    assert found.step >= 0


def _checkpoints() -> dict[str, bytes]:
    return {"behavior": encode_behavior("CartPole", 4096, _trainer_state())}


def _trainer_state() -> dict[str, Any]:
    import torch

    return {"steps_trained": 4096, "weights": {"w": torch.ones(2, 2)}, "returns": [1.0, None, True]}


def _pickle(data: bytes) -> None:
    """Reads an archive with right checksums whose pickle is arbitrary: torch's restricted loader runs on it."""
    whole = _checkpoints()["behavior"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, data if entry.filename.endswith("data.pkl") else old.read(entry.filename))
    _checkpoint(buffer.getvalue())


def _pickles() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(_checkpoints()["behavior"])) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        return {"behavior": archive.read(name)}


def _run_state(data: bytes) -> None:
    """Restores books, sessions and behaviors from a run state whose values are arbitrary, as JSON."""
    try:
        content = json.loads(data, object_pairs_hook=_numbered)
    except (ValueError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    document = {"generation": 1, "trainers": {}, "extra": {}, **content}
    _file(encode_document("run_state", {str(key): value for key, value in document.items()}), "run_state.pt")
    saved = read_run_state(_folder())
    if saved is None:
        return
    books = {"behaviors": saved.behaviors_table, "sessions": saved.sessions, "ledger": saved.ledger}
    asyncio.run(_restored(books))


async def _restored(books: dict[str, Any]) -> None:
    """Restores the books of a learner that listens nowhere."""
    Learner(options(), state=books, has_policy=False)


_HEX: Final = "hex:"


def _numbered(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    """Returns an object of JSON with the numbers and bytes that a run state has."""
    return {
        int(key) if key.isascii() and key.isdigit() and len(key) < 20 else key: _bytes(value) for key, value in pairs
    }


def _bytes(value: Any) -> Any:
    """Returns the bytes of a text `hex:00ff`; any other value as it is."""
    if isinstance(value, str) and value.startswith(_HEX):
        with contextlib.suppress(ValueError):
            return bytes.fromhex(value[len(_HEX) :])
    return value


async def _saved() -> dict[str, Any]:
    """Returns the books of a learner with one session."""
    service = Service()
    service.begin(declared=True)
    learner = service.learner
    content = snapshot(learner.behaviors, learner.sessions, learner.ledger)
    service.end()
    service.loop.close()
    return content


def _run_states() -> dict[str, bytes]:
    content = asyncio.run(_saved())
    state = {"ledger": content["ledger"], "sessions": content["sessions"], "behaviors_table": content["behaviors"]}
    return {"session": json.dumps(plain(state), default=lambda data: _HEX + data.hex()).encode()}


_RUN_FILE: Final = """
default_settings: &base
  trainer_type: ppo
  hyperparameters: {batch_size: 64, buffer_size: 1024, learning_rate: 1.0e-3}
behaviors:
  Crawler:
    <<: *base
    max_steps: 5e5
    reward_signals: {extrinsic: {gamma: 0.99, strength: 1.0}}
  Corridor: {network_settings: {hidden_units: 32, memory: {sequence_length: 8, memory_size: 16}}}
environment_parameters:
  size:
    curriculum:
      - {name: small, completion_criteria: {measure: reward, behavior: Crawler, threshold: 1.5}, value: 1}
      - {name: large, value: {sampler_type: uniform, sampler_parameters: {min_value: 0.5, max_value: 2}}}
env_settings: {seed: -1, num_envs: 1}
rollcast: {target_return: 475, address: "127.0.0.1:50051", on_policy: relaxed}
"""


def _run_file(data: bytes) -> None:
    """Loads a run file; what is loaded can be written, and read again without a change."""
    loaded = load_run_options(_file(data, "run.yaml"))
    document = effective_document(loaded)
    again = load_run_options(_file(to_yaml(document).encode(), "again.yaml"))
    assert again.options == loaded.options


def _run_files() -> dict[str, bytes]:
    examples = Path(__file__).parents[3] / "learner" / "run_files"
    found = {path.stem: path.read_bytes() for path in sorted(examples.glob("*.yaml")) if path.stat().st_size < 3000}
    return {**found, "everything": _RUN_FILE.encode()}


def _token_file(data: bytes) -> None:
    """Reads a token file; each row can be written and read again."""
    access = Access(_file(data, "tokens"))
    now = 1.8e9
    for row in access._table.rows:
        assert row.principal.max_sessions is None or 1 <= row.principal.max_sessions <= MAX_SESSIONS
        assert parse_tokens(row.line()).rows == (row,)
        access.knows(row.principal.name)
        row.is_valid(now)


def _token_files() -> dict[str, bytes]:
    hashes = [token_hash(f"a-token-number-{number}") for number in range(3)]
    text = (
        "# principal role hash\n"
        f"lab-3 actor {hashes[0]} max_sessions=8 behaviors=Walker,Crawler not_after=2027-01-31T00:00:00Z\n"
        f"ops operator {hashes[1]}\n"
        f"eye viewer {hashes[2]} not_after=2027-01-31\n"
    )
    return {"three": text.encode()}


def _secret_file(data: bytes) -> None:
    """Reads a client's token file, and an operator's."""
    path = _file(data, "token")
    for read in (read_token, lambda path: token_from_file(path).reveal()):
        try:
            assert 16 <= len(read(path)) <= 512
        except (IdentityError, UserError):
            continue


def _secrets() -> dict[str, bytes]:
    return {"token": b"tZ3-a-token-of-an-actor-0123456789_abcdefg\n"}


_AUTHORITY: Final = "-----BEGIN CERTIFICATE-----\nMIIBAAAA\n-----END CERTIFICATE-----\n"


def _join_code(data: bytes) -> None:
    """Reads a join code as `rollcast join` does, and writes its folder."""
    shutil.rmtree(_folder() / "certs", ignore_errors=True)  # a code of another principal replaces nothing
    address = join(_folder() / "certs", data.decode("utf-8", "replace"))
    assert (_folder() / "certs" / "learner").read_text(encoding="utf-8").strip() == address.strip()


def _joined(data: bytes) -> None:
    """Reads a join code around arbitrary content, which the fuzzer would not find through its compression."""
    import base64
    import zlib

    packed = base64.urlsafe_b64encode(zlib.compress(data)).rstrip(b"=")
    _join_code(b"rollcast1." + packed)


def _join_codes() -> dict[str, bytes]:
    return {"code": JoinCode("learner.example:50051", _AUTHORITY, "a-token-of-an-actor").encode().encode()}


def _join_contents() -> dict[str, bytes]:
    content = ["learner.example:50051", "300100", "a-token-of-an-actor"]
    return {"content": json.dumps(content).encode(), "named": json.dumps([*content, "lab"]).encode()}


def _status_file(data: bytes) -> None:
    """Reads the small files of a run folder: status, addresses, progress, journal. Damaged ones count as empty."""
    status = TrainingStatus.load(_file(data, "training_status.json"))
    for name in ("CartPole", "Walker"):
        status.checkpoints(name)
        status.best(name)
    status.lessons(["size"])
    status.write(_folder() / "written.json")
    for name in ("address.json", "progress.json", "events.jsonl"):
        _file(data, name)
    read_addresses(_folder())
    best_returns(_folder())
    _last_event(_folder())


def _status_files() -> dict[str, bytes]:
    entry = {
        "steps": 4096,
        "file_path": "CartPole-4096.onnx",
        "reward": 1.5,
        "creation_time": 1.7e9,
        "auxillary_file_paths": ["CartPole-4096.pt"],
    }
    best = {**entry, "measure": "training", "lesson_revision": 0}
    status = {
        "CartPole": {"checkpoints": [entry], "best_checkpoint": best, "elo": 1200.0},
        "size": {"lesson_num": 1},
        "metadata": {"stats_format_version": "0.3.0"},
    }
    progress = {"behaviors": {"CartPole": {"best_return": 1.5}}, "event": "stopped", "reason": "done"}
    address = {"address": "127.0.0.1:1", "http": "127.0.0.1:2", "ca": "a", "token": "b"}
    return {
        name: json.dumps(document).encode()
        for name, document in (("status", status), ("progress", progress), ("address", address))
    }


_STAT: Final = "Environment/Cumulative Reward"


def _curves(data: bytes) -> None:
    """Reads the statistics of a run as `rollcast compare` does."""
    run = _folder() / "run"
    (run / "CartPole").mkdir(parents=True, exist_ok=True)
    _file(data, "run/CartPole/stats.csv")
    for curve in read_curves(run, _STAT, 100):
        assert len(curve.steps) == len(curve.seconds) == len(curve.values) > 0
        assert all(math.isfinite(value) for value in curve.values)


def _statistics() -> dict[str, bytes]:
    rows = [f"{1000 * n},{n}.5,{_STAT},{n}.25,7,0.5" for n in range(1, 6)]
    return {"stats": "\n".join(["step,seconds,key,value,count,std", *rows, ""]).encode()}


def _snapshot(data: bytes) -> None:
    """Reads a snapshot of self-play whose header is arbitrary: it is the one that was asked for, or none."""
    files, stored = SnapshotFiles(_folder()), make_policy(0)
    key = files.write(stored)
    (path,) = _folder().glob("CartPole/*/*.header")
    path.write_bytes(data)
    found = files.read("CartPole", key)
    assert found is None or (found.key == key and found.payload == stored.payload)


def _headers() -> dict[str, bytes]:
    return {"header": make_policy(0).description.to_message().SerializeToString()}


def _certificate(data: bytes) -> None:
    """Reads the authority and the learner's certificate of a folder, and a client's pair."""
    folder = _folder() / "authority"
    (folder / AUTHORITY_KEY).parent.mkdir(parents=True, exist_ok=True)
    (folder / AUTHORITY_KEY).write_bytes(data)
    for name in (AUTHORITY, SERVER_CERT):
        (folder / name).write_bytes(data)
    for read in (Authority.load, hosts_of):
        with contextlib.suppress(UserError):
            read(folder)
    with contextlib.suppress(IdentityError):
        check_pair(folder / SERVER_CERT, folder / AUTHORITY_KEY)


def _certificates() -> dict[str, bytes]:
    folder = _folder() / "made"
    made = Authority.make("test")
    made.save(folder)
    certificate, key = made.server(("learner.example", "127.0.0.1"))
    return {"both": (folder / AUTHORITY_KEY).read_bytes() + certificate, "pair": certificate + key}


def _replay(data: bytes) -> None:
    """Reads a replay memory."""
    from tests.learner.training.buffers.test_replay import memory_of

    read_replay(memory_of(30), _file(data, "replay.npz"))


def _replays() -> dict[str, bytes]:
    from learner.training.buffers.replay_file import write_replay
    from tests.learner.training.buffers.chunks import make_chunk
    from tests.learner.training.buffers.test_replay import add, memory_of

    memory = memory_of(30)
    add(memory, make_chunk([5], first=0))
    path = _folder() / "seed.npz"
    write_replay(memory, path)
    return {"memory": path.read_bytes()}


def _repaired(use: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Returns a reader of archives that corrects the checksums of their entries first."""

    def repaired(data: bytes) -> None:
        buffer = io.BytesIO()
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
                for entry in old.infolist():
                    start = (
                        entry.header_offset
                        + 30
                        + int.from_bytes(data[entry.header_offset + 26 : entry.header_offset + 28], "little")
                        + int.from_bytes(data[entry.header_offset + 28 : entry.header_offset + 30], "little")
                    )
                    new.writestr(entry.filename, data[start : start + min(entry.file_size, 1 << 16)])
        except Exception:  # noqa: BLE001 - no archive: the plain target has it
            use(data)
            return
        use(buffer.getvalue())

    return repaired


_BAD_STATE: Final = (*runfolder.NO_SENSE, UserError)
"""Errors that `must_fit` turns into one with the name of the file."""

TARGETS = (
    Target("demonstration", _demonstration, (BadDemonstration,), _demonstrations),
    Target("checkpoint", _checkpoint, (BadCheckpoint,), _checkpoints),
    Target("checkpoint-pickle", _pickle, (BadCheckpoint,), _pickles),
    Target("run-state", _run_state, _BAD_STATE, _run_states),
    Target("replay", _repaired(_replay), (BadReplay,), _replays, max_bytes=8192),
    Target("run-file", _run_file, (UserError,), _run_files, words=(b"behaviors:", b"<<: *", b"&a ", b"!!")),
    Target(
        "token-file",
        _token_file,
        (UserError,),
        _token_files,
        words=(b"max_sessions=", b"behaviors=", b"not_after=", b"sha256:", b" actor ", b" viewer "),
    ),
    Target("secret-file", _secret_file, (), _secrets),
    Target("join-code", _join_code, (ActorError,), _join_codes, words=(b"rollcast1.",)),
    Target("join-content", _joined, (ActorError,), _join_contents, words=(b"\\ud800", b"\\u0000", b"\\n")),
    Target("run-folder", _status_file, (), _status_files),
    Target("curves", _curves, (UserError,), _statistics, words=(_STAT.encode(), b"1e15", b"nan")),
    Target("snapshot", _snapshot, (), _headers),
    Target("certificate", _certificate, (), _certificates, words=(b"-----BEGIN CERTIFICATE-----", b"EC PRIVATE KEY")),
)
