#!/bin/sh
# Create .venv if need be and install exactly what a lock file says: make_env.sh PYTHON LOCKFILE
set -eu
python=$1
lock=$2

if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { echo "clusterspace needs Python 3.11 or later; try: make PYTHON=python3.12 …" >&2; exit 1; }
    # Debian ships venv's installer in a package of its own. virtualenv does the same without it, from a
    # folder of its own: neither the system's Python nor the user's packages are touched.
    "$python" -m venv .venv 2>/dev/null || {
        rm -rf .venv
        bootstrap=$(mktemp -d) && trap 'rm -rf "$bootstrap"' EXIT
        "$python" -m pip install --quiet --target "$bootstrap" virtualenv &&
            PYTHONPATH="$bootstrap" "$python" -m virtualenv --quiet .venv
    } || { echo "cannot create .venv: install python3-venv or pip for $python" >&2; exit 1; }
fi

echo "installing from $lock" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
