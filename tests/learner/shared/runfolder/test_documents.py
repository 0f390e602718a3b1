"""Tests what checkpoint files accept and refuse."""

from __future__ import annotations

import enum
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learner.shared.files import write_file
from learner.shared.runfolder.documents import BadCheckpoint, encode_document, plain, read_document


class Color(enum.IntEnum):
    """An enum."""

    RED = 1


class Bomb:
    """An object whose unpickling would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/rollcast-bomb"),))  # noqa: S108 - it must never come to be


def save(path: Path, content: dict[str, Any], kind: str = "test") -> Path:
    """Writes a checkpoint file."""
    write_file(path, encode_document(kind, content))
    return path


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    """Plain values, tensors and optimizer states are equal after a round trip."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    content = {
        "none": None,
        "numbers": [1, 2.5, True, (3, "x")],
        "bytes": b"\0\xff",
        "tensors": {"half": torch.ones(2, dtype=torch.bfloat16), "empty": torch.zeros(0), "scalar": torch.tensor(3)},
        "weights": layer.state_dict(),
        "optimizer": optimizer.state_dict(),
        7: "integer keys",
        "almost plain": [np.float64(0.5), np.int32(-1), np.bool_(True), Color.RED],
    }
    read = read_document(save(tmp_path / "x.pt", content), "test")  # type: ignore[arg-type]
    assert [(type(value), value) for value in read["almost plain"]] == [(float, 0.5), (int, -1), (bool, True), (int, 1)]
    assert read["numbers"] == [1, 2.5, True, (3, "x")]
    assert read["tensors"]["half"].dtype == torch.bfloat16
    assert torch.equal(read["weights"]["weight"], layer.weight)
    assert torch.equal(read["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert read[7] == "integer keys"  # type: ignore[index]
    torch.optim.Adam(layer.parameters()).load_state_dict(read["optimizer"])


def test_a_view_does_not_drag_its_whole_storage_along() -> None:
    """A view of a large tensor is saved with the bytes of the view."""
    large = torch.zeros(1_000_000)
    assert len(encode_document("test", {"slice": large[:10]})) < 10_000
    assert plain(large[::2]).shape == (500_000,)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.zeros(2), "ndarray"),
        ({1, 2}, "set"),
        (object(), "object"),
        ({2.5: 1}, "key 2.5"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(value: object, named: str) -> None:
    """A value that could not be loaded is refused when saving, with its place."""
    with pytest.raises(TypeError, match=r"state\['a'\]\[0\].*") as caught:
        encode_document("test", {"a": [value]})
    assert named in str(caught.value)


def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    """A flipped bit is either detected or has no effect."""
    weights = torch.arange(512.0)
    path = save(tmp_path / "x.pt", {"weights": weights, "step": 7})
    good = path.read_bytes()
    weights_at = good.index(weights.numpy().tobytes())
    refused = 0
    for position in range(0, len(good), 13):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bad)
        try:
            read = read_document(path, "test")
        except BadCheckpoint:
            refused += 1
        else:
            assert not weights_at <= position < weights_at + 4 * 512
            assert torch.equal(read["weights"], weights)
            assert read["step"] == 7
    assert refused > 2048 // 13


@pytest.mark.parametrize("kept", [0, 1, 100, 5000, -1])
def test_a_cut_file_is_noticed(tmp_path: Path, kept: int) -> None:
    """A truncated file is reported as damaged."""
    path = save(tmp_path / "x.pt", {"weights": torch.arange(4096.0)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadCheckpoint, match="is damaged, or not a checkpoint"):
        read_document(path, "test")


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    """A file with code is refused, and the code does not run."""
    buffer = io.BytesIO()
    torch.save({"format": 1, "kind": "test", "bomb": Bomb()}, buffer)
    (tmp_path / "x.pt").write_bytes(buffer.getvalue())
    with pytest.raises(BadCheckpoint, match="not a checkpoint of Rollcast"):
        read_document(tmp_path / "x.pt", "test")
    (tmp_path / "y.pt").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadCheckpoint):
        read_document(tmp_path / "y.pt", "test")
    assert not Path("/tmp/rollcast-bomb").exists()  # noqa: S108 - see Bomb


def test_an_archive_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    """A compressed archive is refused, because it could expand beyond the memory."""
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000_000))
    with pytest.raises(BadCheckpoint, match="it is compressed"):
        read_document(path, "test")


def test_an_archive_that_claims_to_unpack_to_much_more_is_refused(tmp_path: Path) -> None:
    """An entry without compression that claims more bytes than the file has is refused."""
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"data")
    data = bytearray(path.read_bytes())
    size = data.index(b"PK\x01\x02") + 24  # the unpacked size in the central directory
    data[size : size + 4] = (10_000_000).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(BadCheckpoint, match="10000000 bytes"):
        read_document(path, "behavior")


def test_foreign_files_are_told_apart(tmp_path: Path) -> None:
    """Foreign files, newer formats and other kinds have distinct messages."""
    path = tmp_path / "x.pt"
    torch.save({"Policy": {}, "global_step": torch.tensor(1)}, path)
    with pytest.raises(BadCheckpoint, match="is a checkpoint of ML-Agents"):
        read_document(path, "test")
    torch.save([1, 2], path)
    with pytest.raises(BadCheckpoint, match="no format number"):
        read_document(path, "test")
    torch.save({"format": 2, "kind": "test"}, path)
    with pytest.raises(BadCheckpoint, match="has format 2, but this version of Rollcast reads format 1"):
        read_document(path, "test")
    with pytest.raises(BadCheckpoint, match="of kind 'behavior', not 'run_state'"):
        read_document(save(path, {}, kind="behavior"), "run_state")


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing file, or a folder in its place, is reported with its path."""
    with pytest.raises(BadCheckpoint, match=r"x\.pt does not exist"):
        read_document(tmp_path / "x.pt", "test")
    with pytest.raises(BadCheckpoint, match="is a folder, not a checkpoint"):
        read_document(tmp_path, "test")


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    """A pipe is refused without waiting."""
    os.mkfifo(tmp_path / "run_state.pt")
    with pytest.raises(BadCheckpoint, match="not a regular file"):
        read_document(tmp_path / "run_state.pt", "run_state")
