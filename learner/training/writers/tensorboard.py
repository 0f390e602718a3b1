"""Statistics as TensorBoard event files, written with TensorBoard's own package and without torch."""

from __future__ import annotations

import importlib
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.extras import install
from rollcast.text import in_one_line, printable

from learner.shared.observe.stats import HIDDEN_KEYS, VIDEO, StatSummary

if TYPE_CHECKING:
    from learner.training.writers.events import EventFile

GIF_SECONDS, GIF_FPS, GIF_WIDTH = 30, 10, 320
"""Most seconds, frames per second and pixels of a video in TensorBoard: a GIF takes much room, and time of the trainers."""
HYPERPARAMETERS = "Hyperparameters"
"""Title of the text entry that holds a behavior's settings."""


class TensorBoardWriter:
    """Writes each category into a separate folder: ``<run folder>/<behavior>/events.out.tfevents.*``.

    The first write creates the file and imports the package, so that a run without statistics does not need it.

    Args:
        run_folder: ``results/<run_id>``.
        folder_name: Returns the name of a behavior's folder in it; pass that of its checkpoints.
        settings: The resolved settings of the run, of which TensorBoard's table of hyperparameters shows those of each
            behavior; None for none.
    """

    def __init__(
        self,
        run_folder: Path,
        folder_name: Callable[[str], str] = str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings or {}
        self._run_folder = run_folder
        self._folder_name = folder_name
        self._files: dict[str, EventFile] = {}
        self._restarts: dict[str, int] = {}

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Writes a scalar for each summary, and now and then the values of a HISTOGRAM as ``Histograms/<key>``.

        Raises:
            OSError: The file cannot be written.
            ValueError: The category is not a folder name.
        """
        shown = {key: summary for key, summary in summaries.items() if key not in HIDDEN_KEYS}
        if shown:
            self._file(category).add_summaries(shown, step)

    def write_text(self, category: str, title: str, text: str, step: int = 0) -> None:
        """Writes a Markdown text; with that of `HYPERPARAMETERS` also the row of the table.

        Raises:
            OSError: The file cannot be written.
            ValueError: The category is not a folder name.
        """
        file = self._file(category)
        file.add_text(title, text, step)
        hyperparameters = self._hyperparameters(category)
        if title == HYPERPARAMETERS and hyperparameters:
            file.add_hyperparameters(hyperparameters, f"{self._run_folder.name}/{category}")

    def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
        """Shows a video as a GIF among the pictures; other files are not kept.

        Raises:
            OSError: The file cannot be written, or the video cannot be read.
            ValueError: The category is not a folder name.
        """
        if kind == VIDEO:
            picture = gif_of(path)
            width, height = struct.unpack("<HH", picture[6:10])
            self._file(category).add_picture("Video", picture, (height, width), step)

    def restart(self, category: str, step: int) -> None:
        """Records that a run resumes from a checkpoint: values written at later steps are not part of it.

        If it cannot be written now, it is written before the next event.

        Raises:
            OSError: The file cannot be written.
            ValueError: The category is not a folder name.
        """
        self._restarts[category] = step + 1
        self._file(category)

    def close(self) -> None:
        """Closes every file."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _hyperparameters(self, category: str) -> dict[str, object]:
        """Returns the settings of a behavior and the seed, by dotted names."""
        behaviors = self._settings.get("behaviors") or {}
        own = behaviors.get(category) or self._settings.get("default_settings") or {}
        seed = (self._settings.get("env_settings") or {}).get("seed")
        return {**dict(flat_settings(own)), **({} if seed is None or not own else {"seed": seed})}

    def _file(self, category: str) -> EventFile:
        file = self._files.get(category)
        if file is None:
            name = self._folder_name(category)
            if not name or name in {".", ".."} or set(name) & {"/", "\\", "\0"}:
                raise ValueError(f"a statistics category must be a valid folder name, got {printable(name)!r}")
            from learner.training.writers.events import EventFile  # noqa: PLC0415  (imports TensorBoard)

            file = EventFile(self._run_folder / name)
            self._files[category] = file
        step = self._restarts.get(category)
        if step is not None:
            file.add_restart(step)
            del self._restarts[category]
        return file


def gif_of(video: Path) -> bytes:
    """Returns the first `GIF_SECONDS` of a video as a GIF: TensorBoard's way to show one.

    Raises:
        OSError: imageio-ffmpeg is not installed, or the video cannot be read.
    """
    try:
        program: str = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise OSError(f"videos in TensorBoard need imageio-ffmpeg ({error}); {install('video')}") from None
    form = f"fps={GIF_FPS},scale='min({GIF_WIDTH},iw)':-1"
    command = [program, "-loglevel", "error", "-i", str(video), "-t", str(GIF_SECONDS), "-vf", form, "-f", "gif", "-"]
    try:
        done = subprocess.run(  # noqa: S603 - ffmpeg, by its path
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIF_SECONDS, check=True
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{video.name} cannot be read as a video: {in_one_line(error)}") from None
    return done.stdout


def settings_table(settings: Mapping[str, object]) -> str:
    """Returns a tree of settings as a Markdown table with dotted names, for the text ``Hyperparameters``."""
    rows = [f"| {printable(name)} | {_cell(value)} |" for name, value in flat_settings(settings)]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def flat_settings(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields the settings of a tree with their dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _cell(value: object) -> str:
    return printable(str(value)).replace("|", "\\|")
