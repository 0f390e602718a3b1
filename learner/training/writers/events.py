"""Writes one TensorBoard event file. Importing this module imports TensorBoard."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.text import printable
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.summary.writer import record_writer

from learner.shared.observe.jsonfile import AppendFile
from learner.shared.observe.stats import Aggregation, StatSummary

HISTOGRAM_BINS = 30
HISTOGRAM_GROUP = "Histograms"
"""Group of the tags of histograms, so that they do not stand between the curves."""
HISTOGRAM_EVERY = 10
"""Summaries of a statistic for each histogram."""
METRICS = ("Environment/Cumulative Reward", "Evaluation/Cumulative Reward", "Environment/Episode Length")
"""Curves whose last values TensorBoard's table of hyperparameters shows."""
LARGEST_DRAWN = float(np.finfo(np.float32).max)

# TensorBoard has neither annotations nor stubs, so its messages and records are Any in this file only.
_event: Any = event_pb2
_summary: Any = summary_pb2
_tensor: Any = tensor_pb2
_types: Any = types_pb2
_plugin_data: Any = plugin_data_pb2
_api: Any = api_pb2
_record_writer: Any = record_writer.RecordWriter
_STAMP = re.compile(r"events\.out\.tfevents\.([0-9]{10})\.")


class EventFile:
    """Writes ``events.out.tfevents.*`` in a folder, each event at once and whole.

    TensorBoard's own writer has a thread that stops for good, with a traceback, when the disk is full. Here the caller
    gets the error, and events written after space is freed are readable: a partial record never stays in the file.

    TensorBoard reads the files of a folder in the order of their names and never goes back. So the name of a new file
    always sorts after the existing ones, even if the clock was set back between two starts of the learner.

    Args:
        folder: Folder of the file; created if missing.

    Raises:
        OSError: The folder is not writable.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._histograms: Counter[str] = Counter()
        now = max(time.time_ns(), _newest_ns(folder) + 10**9)
        name = f"events.out.tfevents.{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now % 10**9}"
        self._file = AppendFile(folder / name)
        try:
            self._write(_event.Event(wall_time=time.time(), file_version="brain.Event:2"))
        except OSError:
            self._file.close()
            with contextlib.suppress(OSError):
                (folder / name).unlink()
            raise

    def add_restart(self, step: int) -> None:
        """Makes TensorBoard hide this folder's earlier events from this step on.

        Raises:
            OSError: The file cannot be written.
        """
        start = _event.SessionLog(status=_event.SessionLog.START)
        for _ in range(2):  # TensorBoard takes the first start for the beginning of the run and hides nothing
            self._write(_event.Event(wall_time=time.time(), step=step, session_log=start))

    def add_summaries(self, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Adds one event with a scalar for each summary.

        The first and every `HISTOGRAM_EVERY`-th summary of a HISTOGRAM also has its values, as ``Histograms/<key>``.

        Raises:
            OSError: The file cannot be written.
        """
        values = []
        for key, summary in summaries.items():
            tag = printable(key)
            values.append(_summary.Summary.Value(tag=tag, simple_value=summary.value))
            if summary.aggregation is not Aggregation.HISTOGRAM or not summary.values.size:
                continue
            if self._histograms[key] % HISTOGRAM_EVERY == 0:
                tag = f"{HISTOGRAM_GROUP}/{tag}"
                values.append(_summary.Summary.Value(tag=tag, histo=_histogram(summary.values)))
            self._histograms[key] += 1
        self._add(values, step)

    def add_text(self, title: str, text: str, step: int) -> None:
        """Adds a Markdown text.

        Raises:
            OSError: The file cannot be written.
        """
        plugin = _summary.SummaryMetadata.PluginData(plugin_name="text")
        tensor = _tensor.TensorProto(dtype=_types.DT_STRING, string_val=[text.encode()])
        metadata = _summary.SummaryMetadata(plugin_data=plugin)
        self._add([_summary.Summary.Value(tag=title, metadata=metadata, tensor=tensor)], step)

    def add_picture(self, title: str, picture: bytes, shape: tuple[int, int], step: int) -> None:
        """Adds an encoded picture, such as a GIF, which TensorBoard plays.

        Args:
            title: Its tag.
            picture: The bytes of the file.
            shape: Height and width in pixels.
            step: Environment steps trained.

        Raises:
            OSError: The file cannot be written.
        """
        height, width = shape
        image = _summary.Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=picture)
        self._add([_summary.Summary.Value(tag=title, image=image)], step)

    def add_hyperparameters(self, settings: Mapping[str, object], group: str) -> None:
        """Adds a row to TensorBoard's table of hyperparameters, with the last values of `METRICS`.

        Args:
            settings: Values by dotted names.
            group: Name of the row; rows of one name are shown as repetitions.

        Raises:
            OSError: The file cannot be written.
        """
        experiment = _api.Experiment(
            hparam_infos=[_hparam_info(name, value) for name, value in settings.items()],
            metric_infos=[_api.MetricInfo(name=_api.MetricName(tag=tag)) for tag in METRICS],
        )
        start = _plugin_data.SessionStartInfo(group_name=group, start_time_secs=time.time())
        for name, value in settings.items():
            _set_hparam(start.hparams[name], value)
        version = metadata.PLUGIN_DATA_VERSION
        self._add(
            [
                _hparams_value(
                    metadata.EXPERIMENT_TAG, _plugin_data.HParamsPluginData(experiment=experiment, version=version)
                ),
                _hparams_value(
                    metadata.SESSION_START_INFO_TAG,
                    _plugin_data.HParamsPluginData(session_start_info=start, version=version),
                ),
            ],
            0,
        )

    def close(self) -> None:
        """Closes the file; safe to repeat."""
        self._file.close()

    def _add(self, values: list[Any], step: int) -> None:
        self._write(_event.Event(wall_time=time.time(), step=step, summary=_summary.Summary(value=values)))

    def _write(self, event: Any) -> None:
        record = io.BytesIO()
        _record_writer(record).write(event.SerializeToString())
        self._file.append(record.getvalue())


def _hparams_value(tag: str, content: Any) -> Any:
    plugin = _summary.SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    tensor = _tensor.TensorProto(
        dtype=_types.DT_FLOAT, tensor_shape={}
    )  # an empty one, as the plugin's own code writes
    return _summary.Summary.Value(tag=tag, metadata=_summary.SummaryMetadata(plugin_data=plugin), tensor=tensor)


def _hparam_info(name: str, value: object) -> Any:
    if isinstance(value, bool):
        kind = _api.DATA_TYPE_BOOL
    else:
        kind = _api.DATA_TYPE_FLOAT64 if isinstance(value, int | float) else _api.DATA_TYPE_STRING
    return _api.HParamInfo(name=name, type=kind)


def _set_hparam(target: Any, value: object) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    else:
        target.string_value = "" if value is None else printable(str(value))


def _histogram(values: NDArray[np.float64]) -> Any:
    """Returns the values ``[K]``, K > 0 and finite, as TensorBoard's message.

    TensorBoard draws in float32, so larger values are limited to its range.
    """
    values = np.clip(values, -LARGEST_DRAWN, LARGEST_DRAWN)
    lowest, highest = float(values.min()), float(values.max())
    if lowest == highest:
        counts, edges = np.array([float(values.size)]), np.array([lowest, highest])
    else:
        counted, edges = np.histogram(values, bins=HISTOGRAM_BINS)
        counts = counted.astype(np.float64)
    return _summary.HistogramProto(
        min=lowest,
        max=highest,
        num=values.size,
        sum=float(values.sum()),
        sum_squares=float(np.square(values).sum()),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


def _newest_ns(folder: Path) -> int:
    """Returns the latest time in the names of a folder's event files; 0 if there are none."""
    stamps = [_STAMP.match(path.name) for path in folder.iterdir()]
    return max((int(found[1]) * 10**9 for found in stamps if found is not None), default=0)
