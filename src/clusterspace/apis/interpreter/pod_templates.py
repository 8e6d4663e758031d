"""Where the workloads we know keep the specification of their pods."""

from collections.abc import Mapping
from typing import Final, cast

from clusterspace.apis.interpreter import kinds
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupKind

_IN_TEMPLATE: Final = ("spec", "template", "spec")

_PATHS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    kinds.DEPLOYMENT: _IN_TEMPLATE,
    kinds.REPLICA_SET: _IN_TEMPLATE,
    kinds.STATEFUL_SET: _IN_TEMPLATE,
    kinds.DAEMON_SET: _IN_TEMPLATE,
    kinds.JOB: _IN_TEMPLATE,
    kinds.CRON_JOB: ("spec", "jobTemplate", *_IN_TEMPLATE),
    kinds.POD: ("spec",),
}


def pod_spec_of(template: Object) -> Object | None:
    """Return the specification of a workload's pods; None for what runs no pods we know of."""
    path = _PATHS.get(kinds.kind_of(template))
    if path is None:
        return None
    found = find_at(template, *path)
    return cast("Object", found) if isinstance(found, dict) else {}
