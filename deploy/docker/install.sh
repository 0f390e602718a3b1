#!/bin/sh
# Runs inside an image's build, in the folder that holds pyproject.toml, constraints.txt and wheels/.
#
#   install.sh dependencies EXTRAS   creates /opt/rollcast and installs the dependencies of the extras, not the project
#   install.sh project COMMAND       installs the code of this folder, and of its commands only COMMAND
#
# If wheels/ has no wheel, it is filled first, from the package index; torch comes from TORCH_INDEX if that is set. Then each
# wheel is compared with hashes.txt, and everything is installed from wheels/ alone. The environment that runs has no pip; the
# one in /opt/pip stays in the build stage.
set -eu

pip() {
    /opt/pip/bin/python -m pip --disable-pip-version-check --no-cache-dir "$@"
}

fetch() {
    pip wheel --quiet --wheel-dir wheels -c constraints.txt "$@"
}

install() {
    pip --python /opt/rollcast/bin/python install --quiet -c constraints.txt --no-index --find-links wheels "$@"
}

case "${1:-}" in
dependencies)
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { echo "the base image's Python is older than 3.11; set the build argument PYTHON_IMAGE to another image" >&2; exit 1; }
    python3 -m venv /opt/pip
    python3 -m venv --without-pip /opt/rollcast
    python3 requirements.py pyproject.toml "$2" >requirements.txt
    if ! ls wheels/*.whl >/dev/null 2>&1; then
        if [ -n "${TORCH_INDEX:-}" ] && grep -q '^torch' requirements.txt; then
            fetch --no-deps --index-url "$TORCH_INDEX" torch
        fi
        python3 requirements.py pyproject.toml >build.txt
        # shellcheck disable=SC2086 # PACKAGES is several words
        fetch --find-links wheels -r requirements.txt -r build.txt ${PACKAGES:-}
    fi
    python3 hashes.py check wheels
    # shellcheck disable=SC2086 # PACKAGES is several words
    install -r requirements.txt ${PACKAGES:-}
    ;;
project)
    install --no-deps .
    for command in rollcast-learner rollcast-actor rollcast-unity; do
        [ "$command" = "$2" ] || rm -f "/opt/rollcast/bin/$command"
    done
    ;;
*)
    echo "usage: install.sh dependencies EXTRAS | install.sh project COMMAND" >&2
    exit 2
    ;;
esac
