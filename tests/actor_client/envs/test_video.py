"""Tests videos of the first environment's episodes, read back with the library that wrote them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.factory import make_env_batch
from actor_client.envs.video import VideoRecorder
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.envs import toys

ffmpeg: Any = importlib.import_module("imageio_ffmpeg")  # it has no types


def filmed(recorder: VideoRecorder, env: str, *, num_envs: int = 2, vector: bool = False, **kwargs: Any) -> EnvBatch:
    """Returns environments of which the first is filmed, reset."""
    batch = make_env_batch(env, num_envs=num_envs, env_kwargs=kwargs, vector=vector, wrapping=Wrapping(video=recorder))
    batch.reset(list(range(num_envs)))
    return batch


def play(batch: EnvBatch, steps: int) -> None:
    """Takes steps with the first choice."""
    for _ in range(steps):
        batch.step(None, np.zeros((batch.num_envs, 1), np.int32))


def frames(path: Path) -> list[int]:
    """Returns the brightness of each frame of a video, divided by ten."""
    command = [ffmpeg.get_ffmpeg_exe(), *f"-v error -i {path} -f rawvideo -pix_fmt gray -".split()]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    pictures = np.frombuffer(done.stdout, np.uint8).reshape(-1, 18, 22)
    return [round(float(picture.mean()) / 10) for picture in pictures]


def videos(folder: Path) -> dict[str, list[int]]:
    """Returns what is in each video of a folder."""
    return {path.name: frames(path) for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_each_nth_episode_is_a_video_of_all_its_frames(tmp_path: Path) -> None:
    """Every nth episode becomes a video with the frames of its reset and all its steps."""
    batch = filmed(VideoRecorder(tmp_path / "new" / "videos", 2, "Toy"), f"{toys.MODULE}:counting", length=3)
    batch.reset([1, 2])
    play(batch, 2)
    assert (tmp_path / "new" / "videos" / "Toy-episode-000001.mp4").read_bytes() == b""  # for who waits for it
    play(batch, 7)
    batch.close()

    whole = [0, 1, 2, 3]
    assert videos(tmp_path / "new" / "videos") == {"Toy-episode-000001.mp4": whole, "Toy-episode-000003.mp4": whole}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "last"), [("NextStep", [3]), ("SameStep", []), ("Disabled", [3])])
def test_the_first_copy_of_a_vector_environment_is_filmed(tmp_path: Path, mode: str, last: list[int]) -> None:
    """The first copy of a vector environment is filmed; with SameStep the last frame is missing."""
    env = f"{toys.MODULE}:counting_together"
    batch = filmed(VideoRecorder(tmp_path, 1, "Toy"), env, vector=True, mode=mode, length=3)
    play(batch, 8 if mode == "NextStep" else 6)
    batch.close()

    whole = [0, 1, 2, *last]
    found = videos(tmp_path)
    assert found.pop("Toy-episode-000001.mp4") == whole
    assert found.pop("Toy-episode-000002.mp4") == whole
    assert not found


@pytest.mark.slow
def test_an_episode_that_is_cut_says_so_and_numbers_continue(tmp_path: Path) -> None:
    """After a failure the remade environment's episodes continue the numbers; no video is overwritten."""
    recorder = VideoRecorder(tmp_path, 1, "Toy")
    first = filmed(recorder, f"{toys.MODULE}:counting", length=3, fails_at=4)
    with pytest.raises(EnvironmentFailed):
        play(first, 5)
    first.close()
    second = filmed(recorder, f"{toys.MODULE}:counting", length=2)
    play(second, 2)
    second.close()
    other = filmed(VideoRecorder(tmp_path, 1, "Toy"), f"{toys.MODULE}:counting", length=1)
    play(other, 1)
    other.close()

    assert videos(tmp_path) == {
        "Toy-episode-000001-2.mp4": [0, 1],
        "Toy-episode-000001.mp4": [0, 1, 2, 3],
        "Toy-episode-000002-unfinished.mp4": [0, 1],
        "Toy-episode-000003.mp4": [0, 1, 2],
    }


@pytest.mark.slow
@pytest.mark.parametrize("vector", [False, True])
def test_gymnasium_ids_are_filmed(tmp_path: Path, vector: bool) -> None:
    """CartPole is filmed as separate copies and through its vector entry point."""
    batch = filmed(VideoRecorder(tmp_path, 1, "CartPole"), "CartPole-v1", vector=vector)
    play(batch, 30)
    batch.close()

    written = sorted(tmp_path.iterdir())
    assert len(written) > 1
    count, seconds = ffmpeg.count_frames_and_secs(written[0])
    assert count / seconds == pytest.approx(50, rel=0.1)
    assert 8 < count < 14


@pytest.mark.slow
def test_frames_of_another_size_end_the_video_and_not_the_episode(tmp_path: Path) -> None:
    """A frame of another size ends the video with one warning; the next episode is filmed again."""
    batch = filmed(VideoRecorder(tmp_path, 1, "Toy"), f"{toys.MODULE}:counting", num_envs=1, length=3)
    sizes = toys.Counting.render

    def grown(self: toys.Counting) -> Any:
        return sizes(self) if self.left != 1 or self.resets > 2 else np.zeros((5, 5, 3), np.uint8)

    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setattr(toys.Counting, "render", grown)
        play(batch, 6)
    batch.close()

    assert [log["event"] for log in logs] == ["video_failed"]
    assert videos(tmp_path)["Toy-episode-000002.mp4"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("toy", "argument 'render_mode'; --video passes"),
        ("pictureless", "has the render_mode None"),
        ("blind", r"cannot be rendered: ValueError: render\(\) must return"),
    ],
)
def test_an_environment_without_pictures_is_told(tmp_path: Path, env: str, message: str) -> None:
    """An environment without a render mode is reported in one line before any connection."""
    with pytest.raises(ActorError, match=message) as caught:
        filmed(VideoRecorder(tmp_path, 1, "Toy"), f"{toys.MODULE}:{env}")
    assert caught.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT


@pytest.mark.parametrize("module", ["pygame", "imageio_ffmpeg"])
def test_missing_parts_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """The error names the extra that provides the missing library."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ActorError, match=r"\[video\]'") as caught:
        filmed(VideoRecorder(tmp_path, 1, "CartPole"), "CartPole-v1")
    assert caught.value.exit_code is ExitCode.MISSING_EXTRA
