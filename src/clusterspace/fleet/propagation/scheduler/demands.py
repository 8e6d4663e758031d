"""What a binding asks of the scheduler, and where it stands, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.bindings import clusters_of, placement_of, replicas_of, template_of
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.propagation.scheduler.estimates import Amounts, read_amounts
from clusterspace.fleet.propagation.scheduler.placements import (
    Placement,
    Strategy,
    is_another,
    read_applied,
    read_placement,
)
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of
from clusterspace.kube.quantities import Quantity
from clusterspace.kube.timestamps import parse_time

SCHEDULER: Final = "default-scheduler"
_CLAIMS: Final = (stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID, stamps.BINDING_MANAGED_BY)


@dataclass(frozen=True, slots=True)
class Demand:
    """One object to be placed."""

    api_version: str
    kind: str
    template_uid: str
    placement: Placement
    replicas: int = 0
    has_replicas: bool = False
    """Whether replicas are to be shared out; of other objects each cluster gets the whole."""
    each_needs: Amounts = field(default_factory=dict[str, Quantity])
    placed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where it is now, with how many replicas."""
    evicted: frozenset[str] = frozenset()
    group_name: str = ""
    """The affinity group in use."""
    is_new: bool = False
    """Whether no placement is known to have been applied yet."""
    is_changed: bool = False
    """Whether the policy asks for something else than what was applied."""
    is_fresh: bool = False
    """Whether somebody asked for replicas to be shared out anew."""

    @property
    def is_divided(self) -> bool:
        """Whether clusters share the replicas."""
        return self.has_replicas and self.placement.strategy is not Strategy.DUPLICATED


def is_to_schedule(binding: Object) -> bool:
    """Tell whether a binding is for this scheduler: claimed, with a placement, not held back."""
    spec = cast("Object", binding.get("spec") or {})
    return (
        not is_being_deleted(binding)
        and placement_of(binding) is not None
        and any(claim in labels_of(binding) for claim in _CLAIMS)
        and (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
        and not find_at(spec, "suspension", "scheduling")
    )


def read_demand(binding: Object) -> Demand:
    """Read a binding; Malformed names what cannot be read."""
    spec, status = (cast("Object", binding.get(part) or {}) for part in ("spec", "status"))
    template = template_of(binding)
    placement = placement_of(binding) or {}
    requirements = cast("Object | None", spec.get("replicaRequirements"))
    replicas = replicas_of(binding)
    group_name = str(status.get("schedulerObservingAffinityName") or "")
    applied = read_applied(annotations_of(binding).get(stamps.APPLIED_PLACEMENT))
    return Demand(
        api_version=template.api_version,
        kind=template.kind,
        template_uid=template.uid,
        placement=read_placement(placement),
        replicas=replicas,
        has_replicas=(replicas > 0 or requirements is not None)
        and len(spec.get("components") or ()) <= 1,
        each_needs=read_amounts((requirements or {}).get("resourceRequest")),
        placed={each.name: each.replicas for each in clusters_of(binding)},
        evicted=frozenset(
            str(task["fromCluster"]) for task in spec.get("gracefulEvictionTasks") or ()
        ),
        group_name=group_name,
        is_new=applied is None,
        is_changed=applied is not None and is_another(placement, applied, group_name),
        is_fresh=_is_rescheduling(spec, status),
    )


def _is_rescheduling(spec: Object, status: Object) -> bool:
    asked, last = spec.get("rescheduleTriggeredAt"), status.get("lastScheduledTime")
    return bool(asked and last) and parse_time(str(asked)) > parse_time(str(last))
