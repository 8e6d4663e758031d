"""What of a migration may go to another cluster, what stays, and what is to be on both: decisions.

Each group of a policy's objects has a policy of its own, for a policy says one thing about places.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clusterspace.apis import kinds
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.migration.plan import PlanItem
from clusterspace.kube.objects import Object, find_at

_HOLD_DATA: Final = {
    kinds.CLAIM: "what is on its volume does not move",
    kinds.VOLUME: "a volume is of its cluster",
    kinds.STATEFUL_SET: "its pods have their names and volumes there, which do not move",
    kinds.JOB: "on another cluster it would run once more",
    kinds.POD: "it is bound to a node there",
}
_LEAVE_OTHERS: Final = (
    kinds.DEPLOYMENT,
    kinds.DAEMON_SET,
    kinds.REPLICA_SET,
    kinds.CRON_JOB,
    kinds.AUTOSCALER,
)
"""What may leave a namespace in which something stays: nothing that stays needs these."""


class Group(Enum):
    """What becomes of an object; each group of a policy's objects has a policy of its own."""

    GOES = ""
    SHARED = "-shared"
    """It is added, and stays where it is as well: others may need it there."""
    STAYS = "-stays"


def group_path(policy: ResourcePath, group: Group) -> ResourcePath:
    """Return where the policy for a group of a policy's objects is."""
    return ResourcePath(policy.resource, policy.namespace, f"{policy.name}{group.value}")


def policy_paths(policy: ResourcePath) -> tuple[ResourcePath, ...]:
    """Return where the policies for all groups of a policy's objects are, or would be."""
    return tuple(group_path(policy, each) for each in Group)


@dataclass(frozen=True, slots=True)
class Spread:
    """One object, and what becomes of it."""

    planned: PlanItem
    group: Group
    why: str = ""
    """Why it stays, or stays as well."""
    notes: tuple[str, ...] = ()
    """What is not the same elsewhere."""
    is_there: bool = False
    """Whether its policy names the clusters it is to be on, and no others that it is to leave."""


def plan_groups(planned: Iterable[PlanItem], *, is_move: bool) -> list[Spread]:
    """Decide what becomes of each object of a migration, but for namespaces: they are everywhere.

    What needs something that stays, stays; in a namespace of which something stays, so does what
    it may need.
    """
    items = [each for each in planned if each.policy]
    why: dict[str, str] = {}
    for item in items:
        if reason := _HOLD_DATA.get(item.group_version_kind.group_kind):
            why[item.title] = reason
    # Until nothing more follows: an autoscaler of a Deployment that mounts a claim.
    while True:
        more = {
            item.title: f"it needs {need}, which stays"
            for item in items
            for need in item.needs
            if item.title not in why and need in why
        }
        if not more:
            break
        why |= more
    homes = {item.namespace for item in items if item.title in why}
    spreads: list[Spread] = []
    for item in items:
        kind = item.group_version_kind.group_kind
        if item.title in why:
            spreads.append(Spread(item, Group.STAYS, why[item.title]))
        elif is_move and not item.namespace:
            shared = "others on the cluster may need it"
            spreads.append(Spread(item, Group.SHARED, shared))
        elif is_move and item.namespace in homes and kind not in _LEAVE_OTHERS:
            shared = "what stays in its namespace may need it"
            spreads.append(Spread(item, Group.SHARED, shared))
        else:
            spreads.append(Spread(item, Group.GOES))
    return spreads


def notes_on(template: Object) -> tuple[str, ...]:
    """Return what of an object is not the same on another cluster, however well it gets there."""
    notes: list[str] = []
    ports: list[Object] = find_at(template, "spec", "ports") or []
    kind = template.get("kind")
    if kind == "Service" and any(each.get("nodePort") for each in ports):
        notes.append("its node ports may be taken there")
    if kind == "Service" and find_at(template, "spec", "type") == "LoadBalancer":
        notes.append("its load balancer has another address there")
    if kind == "Ingress":
        notes.append("its address is another one there")
    return tuple(notes)
