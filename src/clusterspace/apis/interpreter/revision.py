"""Writing into an object how many replicas one cluster is to run of it."""

from collections.abc import Mapping
from typing import Final

from clusterspace.apis.interpreter.kinds import (
    DEPLOYMENT,
    JOB,
    REPLICA_SET,
    STATEFUL_SET,
    kind_of,
)
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.resources import GroupKind

_FIELDS: Final[Mapping[GroupKind, str]] = {
    DEPLOYMENT: "replicas",
    REPLICA_SET: "replicas",
    STATEFUL_SET: "replicas",
    JOB: "parallelism",
}
"""Which field of a kind's spec says how many pods run at once."""


def with_replicas(manifest: Object, replicas: int) -> Object:
    """Return the manifest with this many replicas; the same one for kinds that have none."""
    field = _FIELDS.get(kind_of(manifest))
    if field is None or find_at(manifest, "spec", field) == replicas:
        return manifest
    return with_value(manifest, replicas, "spec", field)


def find_completions(manifest: Object) -> int | None:
    """Return how many pods of a Job must succeed; None for other kinds, or when any will do."""
    return find_at(manifest, "spec", "completions") if kind_of(manifest) == JOB else None


def with_completions(manifest: Object, completions: int) -> Object:
    """Return the Job with this many completions."""
    return with_value(manifest, completions, "spec", "completions")
