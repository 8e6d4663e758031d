"""What is known of the fields of Kubernetes' built-in kinds: the packed facts, as Schemas.

The facts come from the published schemas by way of tools/schema_facts.py. They are unpacked when
somebody first asks, and each definition becomes a Schema when it is first looked at.
"""

import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from clusterspace.kube.schemas.model import Schema

_PACKED: Final = Path(__file__).parent / "data" / "builtin_schemas.json.xz"

OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
"""The definition of `metadata`."""


def schema_for(group: str, version: str, kind: str) -> Schema | None:
    """Return the schema of a built-in kind; None when Kubernetes publishes none for it."""
    name = _names_by_kind().get((group, version, kind))
    return None if name is None else definition(name)


@cache
def definition(name: str) -> Schema:
    """Return a definition by its published name, such as `io.k8s.api.core.v1.PodSpec`."""
    facts = _facts().get(name)
    if facts is None:
        raise LookupError(f"no built-in schema is named {name!r}")
    return Schema(facts, definition)


def definition_names() -> tuple[str, ...]:
    """Return the name of every definition, sorted."""
    return tuple(_facts())


@cache
def _facts() -> Mapping[str, Mapping[str, Any]]:
    return msgspec.json.decode(lzma.decompress(_PACKED.read_bytes()))


@cache
def _names_by_kind() -> Mapping[tuple[str, str, str], str]:
    return {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, facts in _facts().items()
        for kind in facts.get("x-kubernetes-group-version-kind", ())
    }
