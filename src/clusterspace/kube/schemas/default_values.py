"""Whether the defaults in a schema are values that the schema itself would accept."""

from collections.abc import Iterator, Mapping
from typing import Any

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.pruning import prune
from clusterspace.kube.schemas.validation import validate


def check_default_values(raw: Mapping[str, Any], *, path: str) -> list[Cause]:
    """Return what is wrong with the defaults, at every depth, of a structural schema."""
    return list(_wrong_defaults(Schema(raw), path))


def _wrong_defaults(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.has_default:
        yield from _wrong_default(schema, f"{path}.default")
    if schema.items is not None:
        yield from _wrong_defaults(schema.items, f"{path}.items")
    for name, held in sorted(schema.properties.items()):
        yield from _wrong_defaults(held, f"{path}.properties[{name}]")


def _wrong_default(schema: Schema, path: str) -> Iterator[Cause]:
    if prune(schema.default, schema, is_resource_root=False).unknown:
        yield causes.invalid(path, schema.default, "must not have unknown fields")
    yield from validate(schema.default, schema, path=path)
