"""The agent taken down on the member: what the registration made goes, and nothing else."""

from dataclasses import dataclass
from typing import Final

from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import CannotLeave, Conflict, NotFound
from clusterspace.fleet.membership import agent_manifests, names
from clusterspace.fleet.membership.journal import is_of_hub
from clusterspace.kube.objects import Object, annotations_of, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource

_REMOVED: Final = (
    # The agent first, so that nothing restarts it; its registration last, so that a removal that
    # was broken off can be taken up again.
    agent_manifests.DEPLOYMENT_PLACE,
    agent_manifests.ROLE_BINDING_PLACE,
    agent_manifests.ROLE_PLACE,
    agent_manifests.ACCOUNT_PLACE,
    agent_manifests.REGISTRATION_PLACE,
)
_OCCUPANTS: Final = (agent_manifests.DEPLOYMENTS, names.PODS, names.SECRETS, names.CONFIG_MAPS)
_EVERYWHERE: Final = frozenset({"kube-root-ca.crt"})
"""What every namespace has, whoever uses it."""


@dataclass(frozen=True, slots=True)
class AgentRemoved:
    """What was removed from a member, and what is not ours to remove."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def agent_places() -> tuple[Place, ...]:
    """Return what a registration makes on a member."""
    return (*_REMOVED, agent_manifests.NAMESPACE_PLACE)


async def refuse_other_registration(member: Client, cluster_name: str, marks: set[str]) -> None:
    """Refuse to unregister a member that is registered as another cluster, or with another hub."""
    secret = await member.find(agent_manifests.REGISTRATION_PLACE)
    if secret is None:
        return
    called = annotations_of(secret).get(agent_manifests.CLUSTER_MARK, "")
    if called != cluster_name:
        raise CannotLeave(cluster_name, f"the kubeconfig leads to a member registered as {called}")
    if annotations_of(secret).get(names.HUB_MARK) not in marks:
        raise CannotLeave(cluster_name, "the member is registered with another hub")


async def remove_agent(member: Client, marks: set[str]) -> AgentRemoved:
    """Remove the agent of the hub with one of these marks, and its namespace if nobody uses it."""
    outcome = AgentRemoved()
    for place in _REMOVED:
        outcome = await _remove(member, place, marks, outcome)
    if await _is_in_use(member):
        return outcome
    return await _remove(member, agent_manifests.NAMESPACE_PLACE, marks, outcome)


async def _remove(
    member: Client, place: Place, marks: set[str], outcome: AgentRemoved
) -> AgentRemoved:
    present = await member.find(place)
    if present is None or is_being_deleted(present):
        return outcome
    described = f"{place} (uid {uid_of(present)})"
    if not _is_ours(present, marks):
        return AgentRemoved(outcome.removed, (*outcome.kept, described))
    try:
        await member.delete(place, DeleteOptions(uid_of(present)))
    except (NotFound, Conflict):
        return outcome  # gone, or replaced by somebody else's
    return AgentRemoved((*outcome.removed, described), outcome.kept)


def _is_ours(present: Object, marks: set[str]) -> bool:
    return any(is_of_hub(present, mark) for mark in marks)


async def _is_in_use(member: Client) -> bool:
    """Whether anything of somebody else lives in the agent's namespace."""
    for resource in _OCCUPANTS:
        held = await member.list_objects(Place(resource, agent_manifests.NAMESPACE))
        if any(not _goes_with_agent(resource, each) for each in held):
            return True
    return False


def _goes_with_agent(resource: GroupVersionResource, kube_object: Object) -> bool:
    if is_being_deleted(kube_object) or name_of(kube_object) in _EVERYWHERE:
        return True
    is_pod = resource == names.PODS
    return is_pod and name_of(kube_object).startswith(f"{agent_manifests.AGENT}-")
