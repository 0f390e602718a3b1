"""Rollcast's contract: everything that actors and learners share, and nothing else."""

import os as _os

# ONNX Runtime 1.29 and later sends names and hashes of models to its maker, and keeps an identifier of the machine in the
# user's cache, unless this is set before its import (https://github.com/microsoft/onnxruntime/pull/27379). Training data of
# others is not ours to tell.
_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# gRPC stops and starts its threads around each fork of a program that uses it, and fails at that (https://github.com/grpc/grpc
# /issues/32992, 31885, 19793): of the processes that environments fork one in ten crashed. They do not use gRPC, and live
# without. It reads the variable when it is loaded; a user's own value stays.
_os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
