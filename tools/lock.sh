#!/bin/sh
# Rewrite both lock files from pyproject.toml: versions with hashes, no addresses.
set -eu
compile() { .venv/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate "$@" pyproject.toml; }
compile --group build --output-file requirements.lock
compile --group build --group dev --output-file requirements-dev.lock
