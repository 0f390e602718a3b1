"""Writes videos of episodes frame by frame while the first environment of an actor plays (`--video`).

gymnasium's RecordVideo writes with moviepy, which needs a pillow older than 12, keeps all frames of an episode in
memory and has no version for other vector environments. This module runs the ffmpeg of imageio-ffmpeg, as moviepy does. It
starts ffmpeg itself: the writer of that package runs Python code between fork and exec, which is not safe in a process with
many threads, and its ffmpeg sometimes ends before the first frame.
"""

import importlib
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.extras import install

from actor_client.envs.base import NEXT_STEP, SAME_STEP
from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.tensors import as_array
from actor_client.exits import ActorError, ExitCode
from actor_client.platform import describe_exit, start_process

RENDER_MODE: Final = "rgb_array"
DEFAULT_FPS: Final = 30
"""Frames per second if an environment gives none (`metadata["render_fps"]`), as in gymnasium."""
_QUALITY: Final = "25"
"""The constant rate factor of ffmpeg: a smaller one gives better and larger videos."""

_EXTRA: Final = "video"

_log = structlog.get_logger(__name__)


class VideoRecorder:
    """Writes every Nth episode of one environment as `NAME-episode-000001.mp4`, the first one included.

    The recorder outlives environments: after a failure it continues with the next episode of the remade environment. An
    episode without a step does not count. A file is empty until its video is complete. A video that the end of the actor has cut
    is renamed to `...-unfinished.mp4`.

    Args:
        folder: Folder of the videos; created if missing.
        every: N.
        name: First part of the names.

    Raises:
        ActorError: imageio-ffmpeg is not installed, or the folder cannot be used.
    """

    def __init__(self, folder: Path, every: int, name: str) -> None:
        try:
            self._program: str = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        except (ImportError, RuntimeError) as error:
            raise ActorError(
                ExitCode.MISSING_EXTRA, f"--video cannot write videos: {one_line(error)}; {install(_EXTRA)}"
            ) from error
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ActorError(ExitCode.NOT_WRITTEN, f"--video {folder} cannot be used: {error.strerror}") from error
        self._folder = folder
        self._every = every
        self._name = name
        self._episodes = 0
        self._first: NDArray[np.uint8] | None = None
        self._begun = False
        self._path: Path | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._shape: tuple[int, ...] = ()

    def check(self, env: str, environment: Any) -> None:
        """Renders an environment once; if this fails, the environment is refused before the actor connects.

        Args:
            env: The user's name for the environment, for messages.
            environment: An environment made with `render_mode="rgb_array"`; it is reset.

        Raises:
            ActorError: The environment cannot be rendered.
        """
        if getattr(environment, "render_mode", None) != RENDER_MODE:
            raise UnknownEnvironment(
                f"--video: {env} has the render_mode {getattr(environment, 'render_mode', None)}; it must keep the "
                f"argument render_mode={RENDER_MODE!r} as an attribute and return frames from render()"
            )
        try:
            environment.reset(seed=0)
            frame_of(environment)
        except Exception as error:
            said = f"--video: {env} cannot be rendered: {one_line(error)}"
            if isinstance(error, ImportError) or type(error).__name__ == "DependencyNotInstalled":
                raise ActorError(
                    ExitCode.MISSING_EXTRA, f"{said}; for environments of gymnasium itself, {install(_EXTRA)}"
                ) from error
            raise UnknownEnvironment(said, error) from error

    def begin(self, environment: Any) -> None:
        """Begins an episode and films its first frame, if the episode is to be filmed."""
        self.cut()
        self._begun = True
        self._first = frame_of(environment) if self._episodes % self._every == 0 else None

    def step(self, environment: Any, *, ended: bool, shows_next: bool = False) -> None:
        """Films the frame after a step.

        Args:
            environment: The stepped environment.
            ended: The step ended the episode.
            shows_next: The environment already shows the next episode, so the last frame of this one is lost.
        """
        if self._begun:
            self._begun = False
            self._episodes += 1
            if self._first is not None:
                self._open(self._first, environment)
        if self._writer is not None and not shows_next:
            self._write(frame_of(environment))
        if ended:
            self._finish()

    def cut(self) -> None:
        """Ends a video whose episode will not end."""
        self._finish(is_cut=True)

    def _open(self, first: NDArray[np.uint8], environment: Any) -> None:
        fps = (getattr(environment, "metadata", None) or {}).get("render_fps") or DEFAULT_FPS
        height, width = first.shape[:2]
        self._shape = first.shape
        try:
            self._path = _free(self._folder / f"{self._name}-episode-{self._episodes:06d}.mp4")
            size = f"{width + width % 2}x{height + height % 2}"
            frames = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{float(fps):g}", "-i", "-")
            video = ("-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", _QUALITY, str(_part(self._path)))
            command = (self._program, "-loglevel", "error", "-y", *frames, *video)
            self._writer = start_process(command, output=None, source=subprocess.PIPE)
        except OSError as error:
            self._give_up(error)
            return
        self._write(first)

    def _write(self, frame: NDArray[np.uint8]) -> None:
        if self._writer is None or self._writer.stdin is None:
            return
        if frame.shape != self._shape:
            self._give_up(ValueError(f"the frame has shape {list(frame.shape)}, but the first had {list(self._shape)}"))
            return
        height, width = frame.shape[:2]
        # The format requires even sides.
        even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        try:
            self._writer.stdin.write(np.ascontiguousarray(even).data)
        except OSError as error:
            self._give_up(error)

    def _finish(self, *, is_cut: bool = False) -> None:
        path, writer, self._writer, self._path = self._path, self._writer, None, None
        if writer is not None:
            with suppress(OSError):  # ffmpeg has ended already, as its exit code says
                writer.communicate()
            if writer.returncode:
                _log.warning("video_failed", error=f"ffmpeg {describe_exit(writer.returncode)}")
        if path is not None:
            with suppress(OSError):
                target = _free(path.with_name(f"{path.stem}-unfinished.mp4")) if is_cut else path
                _part(path).replace(target)
                if is_cut:
                    path.unlink()

    def _give_up(self, error: Exception) -> None:
        """Abandons a video that cannot be written; the episode continues."""
        _log.warning("video_failed", file=str(self._path), error=one_line(error))
        self._finish()


class FilmedVector:
    """A vector environment whose first copy is filmed.

    Args:
        environment: An object with the interface of `gymnasium.vector.VectorEnv`.
        recorder: Writes the videos.
    """

    def __init__(self, environment: Any, recorder: VideoRecorder) -> None:
        self._environment = environment
        self._recorder = recorder
        mode = (getattr(environment, "metadata", None) or {}).get("autoreset_mode", NEXT_STEP)
        self._mode = getattr(mode, "value", mode)
        self._has_ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, **arguments: Any) -> Any:
        """Begins an episode, unless a mask excludes the first copy."""
        result = self._environment.reset(**arguments)
        mask = (arguments.get("options") or {}).get("reset_mask")
        if mask is None or mask[0]:
            self._has_ended = False
            self._recorder.begin(self._environment)
        return result

    def step(self, actions: Any) -> Any:
        """Steps the environment; with `NextStep`, the step after an end begins an episode."""
        result = self._environment.step(actions)
        if self._has_ended and self._mode == NEXT_STEP:
            self._has_ended = False
            self._recorder.begin(self._environment)
            return result
        ended = bool(result[2][0] or result[3][0])
        same = ended and self._mode == SAME_STEP
        self._recorder.step(self._environment, ended=ended, shows_next=same)
        if same:
            self._recorder.begin(self._environment)
        self._has_ended = ended
        return result

    def close(self) -> None:
        """Ends the video and the environment."""
        self._recorder.cut()
        self._environment.close()


def frame_of(environment: Any) -> NDArray[np.uint8]:
    """Returns the rendered frame of an environment's first copy, uint8 [height, width, 3].

    Raises:
        ValueError: The frame is not a picture.
    """
    frame = environment.render()
    if isinstance(frame, tuple | list) and frame:
        frame = frame[0]
    shown = as_array(frame)
    if shown.ndim == 4:
        shown = shown[0]
    if shown.ndim != 3 or shown.shape[2] != 3 or shown.dtype != np.uint8 or 0 in shown.shape:
        found = f"{shown.dtype} {list(shown.shape)}" if shown.ndim else type(frame).__name__
        raise ValueError(f"render() must return uint8 [height, width, 3]; got {found}")
    result: NDArray[np.uint8] = np.array(shown)
    return result


def _part(path: Path) -> Path:
    """Returns the file of a video that is not complete yet."""
    return path.with_name(f".{path.name}")


def _free(path: Path) -> Path:
    """Creates an empty file with an unused name, and returns it; actors may share a folder.

    Raises:
        OSError: The file cannot be created.
    """
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        else:
            return candidate
