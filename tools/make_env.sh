#!/bin/sh
# Create .venv if need be and install exactly what a lock file says: make_env.sh PYTHON LOCKFILE
set -eu
python=$1
lock=$2
# Twice quiet: errors are shown, advice about pip itself is not. As variables, which an older pip passes over.
export PIP_QUIET=2 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { echo "clusterspace needs Python 3.11 or later; try: make PYTHON=python3.12 …" >&2; exit 1; }
    # Debian ships venv's installer in a package of its own. virtualenv does the same without it, from a
    # folder of its own: neither the system's Python nor the user's packages are touched.
    # What either says on the way is of no use to whoever runs this: the last line here says what is.
    "$python" -m venv .venv >/dev/null 2>&1 || {
        rm -rf .venv
        bootstrap=$(mktemp -d) && trap 'rm -rf "$bootstrap"' EXIT
        "$python" -m pip install --target "$bootstrap" virtualenv &&
            PYTHONPATH="$bootstrap" "$python" -m virtualenv --quiet .venv
    } || { echo "cannot create .venv: install python3-venv or pip for $python" >&2; exit 1; }
fi

echo "installing from $lock" >&2
.venv/bin/python -m pip install --require-hashes --requirement "$lock"
.venv/bin/python -m pip install --no-deps --no-build-isolation --editable .
