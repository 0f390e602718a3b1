#!/bin/sh
# Fills deploy/docker/wheels with all packages of both images, so that they can be built without a network:
#
#   deploy/docker/wheels.sh [EXTRAS]          (default: learner,certs,gpu,actor,gym,unity)
#
# PYTHON       a Python with pip and the version of the images (3.11);
#              default: the one of .venv if it exists, otherwise python3
# TORCH_INDEX  a package index for torch, as for `make venv`; unset is the default index (CUDA, several GB)
# PACKAGES     further packages, as the build argument PACKAGES of the images
set -eu
cd "$(dirname "$0")/../.."

folder=deploy/docker/wheels
if [ -x .venv/bin/python ]; then PYTHON="${PYTHON:-.venv/bin/python}"; else PYTHON="${PYTHON:-python3}"; fi
version="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
[ "$version" = 3.11 ] ||
    echo "note: these wheels are for Python $version; build with a PYTHON_IMAGE that has this version" >&2

wanted="$(mktemp)"
trap 'rm -f "$wanted"' EXIT
"$PYTHON" deploy/docker/requirements.py pyproject.toml "${1:-learner,certs,gpu,actor,gym,unity}" >"$wanted"
"$PYTHON" deploy/docker/requirements.py pyproject.toml >>"$wanted"

rm -f "$folder"/*.whl
if [ -n "${TORCH_INDEX:-}" ]; then
    "$PYTHON" -m pip wheel --quiet --no-deps -w "$folder" -c constraints.txt --index-url "$TORCH_INDEX" torch
fi
# shellcheck disable=SC2086 # PACKAGES is several words
"$PYTHON" -m pip wheel --quiet -w "$folder" -c constraints.txt --find-links "$folder" -r "$wanted" ${PACKAGES:-}
"$PYTHON" deploy/hashes.py check "$folder"
echo "$(ls "$folder" | grep -c '\.whl$') wheels in $folder, $(du -sh "$folder" | cut -f1)"
