"""Regenerates the committed protobuf code: `python protos/generate.py [DIRECTORY]`.

Reads every `.proto` below this folder and writes `*_pb2.py`, `*_pb2.pyi`, `*_pb2_grpc.py` and `*_pb2_grpc.pyi` next to it
(or below DIRECTORY, for the test that compares). The package path is the import path, so nothing is rewritten.
"""

import os
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(destination: Path) -> None:
    """Writes the generated code of every `.proto` file below `destination`.

    Raises:
        RuntimeError: protoc refused a file; its complaint is on standard error.
    """
    # protoc finds its mypy plug-ins by name: they are next to this interpreter, whose folder may not be on the path.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.proto"))
    out = str(destination)
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={out}",
        f"--mypy_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_grpc_out={out}",
        *sources,
    ]
    if protoc.main(arguments) != 0:  # type: ignore[no-untyped-call]
        raise RuntimeError(f"protoc failed for {', '.join(sources)}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
