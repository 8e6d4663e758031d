"""Our own kinds as CustomResourceDefinitions: one YAML file each, and the reader of these files.

`kubectl apply -f` on this directory makes any kube-apiserver a hub; our own installs them when it
starts. The kinds and fields are those of Karmada, KubeFleet and SIG Multicluster, so that their
clients work here; the groups `access.clusterspace.io` and `migration.clusterspace.io` are our own.
A file is named `<group>_<plural>.yaml`.

To parse them all is a sixth of what a server takes to start. What was parsed is therefore kept
where Python keeps what it compiled, by the digest of each file: one that changed is parsed anew.
"""

import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

from clusterspace.kube.objects import Object, name_of

_DIRECTORY: Final = Path(__file__).parent
_PARSED: Final = _DIRECTORY / "__pycache__" / "definitions.json"


@cache
def definitions() -> tuple[Object, ...]:
    """Return every definition of ours, by name."""
    texts = (each.read_bytes() for each in _DIRECTORY.glob("*.yaml"))
    files = {hashlib.sha256(each).hexdigest(): each for each in texts}
    parsed: dict[str, Object] = {}
    with suppress(OSError, msgspec.DecodeError):  # nobody kept it, or was able to
        parsed = msgspec.json.decode(_PARSED.read_bytes(), type=dict[str, Object])
    if not files.keys() <= parsed.keys():
        parsed = {digest: _parse(text) for digest, text in files.items()}
        _keep(parsed)
    return tuple(sorted((parsed[digest] for digest in files), key=name_of))


@cache
def definition(resource: str, group: str) -> Object:
    """Return one definition of ours, without reading the others."""
    return _parse((_DIRECTORY / f"{group}_{resource}.yaml").read_bytes())


def _parse(text: bytes) -> Object:
    # libyaml's loader: nine times as fast as the one in Python, and still 150 ms for all files.
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _keep(parsed: dict[str, Object]) -> None:
    if sys.dont_write_bytecode:
        return
    # Servers that start at the same time each write a file of their own; the last name counts.
    written = _PARSED.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # a package that may not be written to
        _PARSED.parent.mkdir(exist_ok=True)
        written.write_bytes(msgspec.json.encode(parsed))
        written.replace(_PARSED)
