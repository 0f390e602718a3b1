"""Rollcast's contract: everything that actors and learners share, and nothing else."""

import os as _os

# ONNX Runtime 1.29 and later sends names and hashes of models to its maker, and keeps an identifier of the machine in the
# user's cache, unless this is set before its import (https://github.com/microsoft/onnxruntime/pull/27379). Training data of
# others is not ours to tell.
_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
