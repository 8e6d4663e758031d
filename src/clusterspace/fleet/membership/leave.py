"""Withdraw works, clean or keep, revoke, forget; a dead cluster never blocks.

    Works withdrawn ──> member cleaned ──> credentials, lease, execution namespace ──> Cluster gone

The Cluster's finalizer holds the order. Every step looks at what is there, so that it can be
repeated by whoever comes next: the controllers, `clusterspace unjoin`, or both.

A member is cleaned by its administrator or by the hub itself. Only what our hub made goes, each
object by its UID. What several memberships share stays while another one is there.
ClusterProperties stay: who a cluster is does not end with a membership.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    FINALIZER,
    KEEP_ON_LEAVE,
    NAMESPACES_KEPT,
    WITHDRAWN_PREFIX,
    WORK_FINALIZER,
    conditions_of,
    execution_namespace,
    is_pull,
    secret_ref_of,
)
from clusterspace.apis.works import (
    APPLIED,
    MULTI_CLUSTER_SERVICE,
    manifests_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotLeave,
    ClusterError,
    ClusterspaceError,
    Conflict,
    Forbidden,
    NotFound,
    Unauthorized,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.member_access import Progress, is_of_hub, others_in
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    uid_of,
    with_finalizer,
    with_metadata,
    with_value,
    without_finalizer,
)

CLEANED: Final = "clusterspace.io/member-cleaned"
"""Annotation of a leaving Cluster: how far the cleaning of its member is.

Cleaning ends the hub's own rights. Whoever goes on after it was begun and is refused therefore
knows that it was done.
"""

_BEGUN: Final = "begun"
_DONE: Final = "true"

FORCED_SECONDS: Final = 4.0
"""How long a forced leave tries to clean a member that may be dead; the whole takes under ten."""

_MOST_NAMED: Final = 5
_POLL_SECONDS: Final = 0.5

BeforeRemoval: TypeAlias = Callable[[], Awaitable[object]]
"""Awaited when it is clear that we are let in, just before the first thing is removed."""

Clean: TypeAlias = Callable[[str, BeforeRemoval], Awaitable[object]]
"""Cleans the member of what the hub with this ID made there."""


class Leave:
    """One cluster on its way out of the fleet."""

    def __init__(self, hub: Client, cluster_name: str, clean: Clean) -> None:
        self._hub = hub
        self._name = cluster_name
        self._clean = clean
        self._path = manifests.cluster_path(cluster_name)

    async def begin(self) -> None:
        """Delete the Cluster, held by its finalizer: from now on nothing new is placed there."""
        cluster = await self._hub.get(self._path)
        if not is_being_deleted(cluster):
            # Without a finalizer the Cluster would be gone at once, and the order with it.
            kept = await commit_change(self._hub, self._path, _with_finalizer)
            await _delete(self._hub, self._path, kept)

    async def finish(self, clock: Clock, wait_seconds: float, progress: Progress) -> None:
        """Step until the cluster is gone, saying what for; CannotLeave when that takes too long."""
        until = clock.monotonic() + wait_seconds
        said = ""
        while await self._hub.find(self._path) is not None:
            try:
                await self.step()
            except (CannotLeave, Conflict, NotFound) as obstacle:
                # A conflict or something gone means that the controllers took the step first.
                why = obstacle.why if isinstance(obstacle, CannotLeave) else obstacle.message
                if isinstance(obstacle, CannotLeave) and why != said:
                    progress(f"waiting, {wait_seconds:g}s at most: {why}")
                    said = why
                if clock.monotonic() >= until:
                    late = f"{why}; waited {wait_seconds:g}s, and --force would not wait"
                    raise CannotLeave(self._name, late) from obstacle
                await clock.sleep(_POLL_SECONDS)

    async def step(self) -> None:
        """Go as far as possible; CannotLeave says what it waits for, returning means it is gone."""
        # The order is what keeps a leave from leaving anything behind:
        #
        #     Works first          execution needs the credentials to withdraw what was placed
        #     then the member      while we still have the rights to clean it
        #     then the Secrets     while the Cluster still names them, and holds the name
        #     the Cluster last     whoever comes after a crash begins at the top, and finds the
        #                          steps that were done to be no steps any more
        #
        # The controllers and a person with `unjoin` may be at it at once. Every deletion names a
        # UID and every write a version, so that one of the two is refused and tries again.
        path = manifests.works_path(self._name)
        for work in await self._hub.list_objects(path):
            if not is_being_deleted(work):
                await _delete(self._hub, path.named(name_of(work)), work)
        # Listed anew: Works without a finalizer are gone already, and the scheduler may have placed
        # another one before it heard that the cluster leaves.
        remaining = await self._hub.list_objects(path)
        if remaining:
            why = f"{_named(remaining)} not withdrawn from the member yet"
            raise CannotLeave(self._name, why)
        await self._clean_member()
        await self._forget_on_hub()
        gone = await self._remove_execution_namespace()
        if not gone:
            namespace = execution_namespace(self._name)
            raise CannotLeave(self._name, f"namespace {namespace} on the hub is going away")
        # Namespaces with somebody's objects in them stayed. That is said on the Cluster by whoever
        # withdrew the Works, so before the last of them went; it goes with the Cluster.
        cluster = await self._hub.find(self._path)
        kept = find_condition(conditions_of(cluster or {}), NAMESPACES_KEPT) or {}
        if kept.get("status") == TRUE:
            await self._write_down(str(kept.get("message")).split("; "))
        await self._release()

    async def force(self) -> list[str]:
        """Let the cluster go whatever stands in the way; return what could not be cleaned."""
        # Asked first: once its Works are gone, the controllers may let the Cluster go any moment.
        cluster = await self._hub.find(self._path)
        on_member = (*own_paths(self._name), *shared_paths())
        if cluster is not None and is_pull(cluster):
            on_member = agent_paths(self._name if secret_ref_of(cluster) else "")
        left = await self._abandon_works()
        try:
            async with asyncio.timeout(FORCED_SECONDS):
                await self._clean(await self._hub_id(), self._mark_begun)
        except (ClusterspaceError, TimeoutError) as error:
            left.append(f"the member could not be cleaned: {str(error) or 'no answer in time'}")
            left += [f"on the member: {each}" for each in on_member]
        await self._forget_on_hub()
        await self._remove_execution_namespace()
        if left:
            # Before the Cluster goes: afterwards nobody would know.
            await self._write_down(left)
        await self._release()
        return left

    async def _clean_member(self) -> None:
        """Clean the member, unless that is done: the hub acts by the very role that it deletes.

        Killed after the deletion and before `_DONE` is written, whoever comes next is refused by
        the member, and knows by `_BEGUN` why. Refused without it, we never were let in.
        """
        cluster = await self._hub.get(self._path)
        progress = annotations_of(cluster).get(CLEANED)
        if progress == _DONE or is_pull(cluster):
            # The agent of a Pull cluster was set up from inside, and is taken down from there.
            return
        try:
            await self._clean(await self._hub_id(), self._mark_begun)
        except (ApiError, ClusterError, UnusableKubeconfig) as error:
            is_shut_out = isinstance(error, Unauthorized | Forbidden)
            if not (is_shut_out and progress == _BEGUN):
                why = f"the member cannot be cleaned: {error}"
                raise CannotLeave(self._name, why) from error
        await self._mark(_DONE)

    async def _mark_begun(self) -> None:
        await self._mark(_BEGUN)

    async def _mark(self, progress: str) -> None:
        await commit_change(self._hub, self._path, annotated(CLEANED, progress))

    async def _hub_id(self) -> str:
        return uid_of(await self._hub.get(manifests.namespace_path("kube-system")))

    async def _forget_on_hub(self) -> None:
        secrets = (self._name, manifests.impersonator_secret_name(self._name))
        paths = (*map(manifests.secret_path, secrets), manifests.lease_path(self._name))
        for path in paths:
            present = await self._hub.find(path)
            if present is not None:
                await _delete(self._hub, path, present)

    async def _remove_execution_namespace(self) -> bool:
        path = manifests.namespace_path(execution_namespace(self._name))
        present = await self._hub.find(path)
        if present is None:
            return True
        if not is_being_deleted(present):
            await _delete(self._hub, path, present)
        return await self._hub.find(path) is None

    async def _release(self) -> None:
        with suppress(NotFound):  # the controllers were first
            await commit_change(self._hub, self._path, _released)

    async def _abandon_works(self) -> list[str]:
        """Let go of Works that nobody withdraws; what they placed stays where it is."""
        # Should execution be alive after all, it may be withdrawing one of them right now. Either
        # its record of what it deletes, or our taking off of the finalizer, comes second and is a
        # conflict. Execution finds the Work gone then; ours is made anew, on what it recorded.
        path = manifests.works_path(self._name)
        works = await self._hub.list_objects(path)
        for work in works:
            target = path.named(name_of(work))
            try:
                stored = await commit_change(self._hub, target, _abandoned)
                await _delete(self._hub, target, stored)
            except NotFound:
                continue
        unconfirmed = [f"perhaps placed: {each}" for each in unreported_objects(works)]
        return [f"placed: {each}" for each in placed_objects(works)] + unconfirmed

    async def _write_down(self, left: list[str]) -> None:
        path = manifests.left_behind_path(self._name)
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": path.name, "namespace": path.namespace},
            "data": {"left-behind": "\n".join(left) + "\n"},
        }
        try:
            await self._hub.create(path.collection, body)
        except AlreadyExists:
            data = body["data"]
            await commit_change(self._hub, path, lambda present: {**present, "data": data})


def placed_objects(works: Iterable[Object]) -> list[str]:
    """Return the objects that Works have on the member, as `Kind namespace/name`.

    A Work's status lists what is there by it: neither what the member would not have, nor a
    namespace that was there before and was left to whoever made it.
    """
    return sorted(
        _object_text(entry["identifier"])
        for work in works
        for entry in cast("list[Object]", find_at(work, "status", "manifestStatuses") or [])
        if entry.get("identifier") and find_at(entry, "identifier", "kind") != MULTI_CLUSTER_SERVICE
    )


def unreported_objects(works: Iterable[Object]) -> list[str]:
    """Return the objects of Works that nobody has reported on: they may be on the member."""
    return sorted(
        _object_text({**each, **metadata_of(each)})
        for work in works
        if find_condition(find_at(work, "status", "conditions"), APPLIED) is None
        for each in manifests_of(work)
        if each.get("kind") != MULTI_CLUSTER_SERVICE  # asks for endpoints, and places nothing
    )


def _object_text(named: Object) -> str:
    key = "/".join(filter(None, (named.get("namespace"), named.get("name"))))
    return f"{named.get('kind')} {key}"


async def keep_resources(hub: Client, cluster_name: str) -> int:
    """Let what Works placed stay on the member when they are withdrawn; return how many Works.

    The Cluster says so first: Works may be written anew while it leaves.
    """
    cluster_path = manifests.cluster_path(cluster_name)
    await commit_change(hub, cluster_path, annotated(KEEP_ON_LEAVE, "true"))
    path = manifests.works_path(cluster_name)
    works = await hub.list_objects(path)
    for work in works:
        with suppress(NotFound):
            await commit_change(hub, path.named(name_of(work)), _kept)
    return len(works)


# -- what is changed on the hub, each of the object as it is by then ---------------------------


def annotated(key: str, value: str) -> Callable[[Object], Object]:
    """Return the change that sets an annotation."""
    return lambda present: with_metadata(
        present, annotations={**annotations_of(present), key: value}
    )


def _with_finalizer(cluster: Object) -> Object:
    # One that is being deleted takes no new finalizers.
    return cluster if is_being_deleted(cluster) else with_finalizer(cluster, FINALIZER)


def _released(cluster: Object) -> Object:
    # One that was made anew under the name meanwhile is another's.
    return without_finalizer(cluster, FINALIZER) if is_being_deleted(cluster) else cluster


def _abandoned(work: Object) -> Object:
    return without_finalizer(work, WORK_FINALIZER)


def _kept(work: Object) -> Object:
    return with_value(work, True, "spec", "preserveResourcesOnDeletion")


async def _delete(owner: Client, path: ResourcePath, present: Object) -> None:
    try:
        await owner.delete(path, DeleteOptions(uid_of(present)))
    except (NotFound, Conflict):
        return  # gone, or replaced by another: not ours to remove


def _named(works: list[Object]) -> str:
    shown = ", ".join(sorted(name_of(each) for each in works)[:_MOST_NAMED])
    more = f" and {len(works) - _MOST_NAMED} more" if len(works) > _MOST_NAMED else ""
    if len(works) == 1:
        return f"Work {shown} is"
    return f"{len(works)} Works ({shown}{more}) are"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed from a member, each with its UID, and what is not ours to remove."""

    removed: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def own_paths(cluster_name: str) -> tuple[ResourcePath, ...]:
    """Return the objects on the member that one membership alone uses."""
    role = manifests.role_name(cluster_name)
    return (
        *_impersonation_paths(cluster_name),
        manifests.role_binding_path(role),
        manifests.account_path(manifests.account_name(cluster_name)),
        manifests.role_path(role),
    )


def _impersonation_paths(cluster_name: str) -> tuple[ResourcePath, ...]:
    beside = manifests.impersonation_role_name(cluster_name)
    return manifests.role_binding_path(beside), manifests.role_path(beside)


def shared_paths() -> tuple[ResourcePath, ...]:
    """Return the objects on the member that all its memberships share."""
    return (
        manifests.role_binding_path(manifests.IMPERSONATOR),
        manifests.account_path(manifests.IMPERSONATOR),
        manifests.role_path(manifests.IMPERSONATOR),
        manifests.namespace_path(CLUSTER_NAMESPACE),
    )


def plan_removals(
    cluster_name: str, *, is_shared: bool, as_administrator: bool
) -> tuple[ResourcePath, ...]:
    """Return the objects to remove, in order.

    The hub removes its own role last, for with the role its rights end; the member's garbage
    collector removes what the role owns. A role that another's join made stays, and so would what
    our controllers made beside it: that goes first.
    """
    if not as_administrator:
        return (
            *_impersonation_paths(cluster_name),
            manifests.role_path(manifests.role_name(cluster_name)),
        )
    return (*own_paths(cluster_name), *(() if is_shared else shared_paths()))


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Removes what the hub made on a member, through a client with the rights to do so."""

    member: Client
    is_administrator: bool
    """Whether the client is an administrator's; else the hub's own, with the rights of a join."""

    async def clean(self, cluster_name: str, hub_id: str, before_removal: BeforeRemoval) -> Cleaned:
        """Remove what our hub made on a member; what others made stays."""
        others = await others_in(self.member, cluster_name)
        paths = plan_removals(
            cluster_name, is_shared=bool(others), as_administrator=self.is_administrator
        )
        removed: list[str] = []
        foreign: list[str] = []
        ours: list[tuple[ResourcePath, Object]] = []
        for path in paths:
            present = await self.member.find(path)
            if present is None or is_being_deleted(present):
                continue
            if is_of_hub(present, hub_id):
                ours.append((path, present))
            else:
                foreign.append(str(path))
        await before_removal()
        for path, present in ours:
            await _delete(self.member, path, present)
            removed.append(f"{path} (uid {uid_of(present)})")
        return Cleaned(tuple(removed), tuple(foreign))


_AGENT_OBJECTS: Final = (
    # The agent first, so that nothing restarts it; its registration last, so that a removal that
    # was broken off can be taken up again.
    manifests.AGENT_DEPLOYMENT_PLACE,
    manifests.AGENT_ROLE_BINDING_PLACE,
    manifests.AGENT_ROLE_PLACE,
    manifests.AGENT_ACCOUNT_PLACE,
    manifests.REGISTRATION_PLACE,
)
_OCCUPANTS: Final = (
    manifests.DEPLOYMENTS,
    manifests.PODS,
    manifests.SECRETS,
    manifests.CONFIG_MAPS,
)
_EVERYWHERE: Final = frozenset({"kube-root-ca.crt"})
"""What every namespace has, whoever uses it."""


@dataclass(frozen=True, slots=True)
class AgentRemoved:
    """What was removed from a member, and what is not ours to remove."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def agent_paths(reported: str = "") -> tuple[ResourcePath, ...]:
    """Return the objects that a registration makes on a member.

    `reported` is the name of a cluster whose registration reported credentials: a role, which owns
    all that was made for them.
    """
    roles = (manifests.role_path(manifests.role_name(reported)),) if reported else ()
    return (*_AGENT_OBJECTS, *roles, manifests.AGENT_NAMESPACE_PLACE)


async def refuse_other_registration(member: Client, cluster_name: str, marks: set[str]) -> None:
    """Refuse to unregister a member that is registered as another cluster, or with another hub."""
    secret = await member.find(manifests.REGISTRATION_PLACE)
    if secret is None:
        return
    called = annotations_of(secret).get(manifests.CLUSTER_MARK, "")
    if called != cluster_name:
        raise CannotLeave(cluster_name, f"the kubeconfig leads to a member registered as {called}")
    if annotations_of(secret).get(manifests.HUB_MARK) not in marks:
        raise CannotLeave(cluster_name, "the member is registered with another hub")


async def remove_agent(member: Client, cluster_name: str, marks: set[str]) -> AgentRemoved:
    """Remove the agent of the hub with one of these marks, and its namespace if nobody uses it."""
    removed: list[str] = []
    kept: list[str] = []
    for path in agent_paths(cluster_name):
        if path == manifests.AGENT_NAMESPACE_PLACE and await _is_in_use(member):
            continue
        present = await member.find(path)
        if present is None or is_being_deleted(present):
            continue
        described = f"{path} (uid {uid_of(present)})"
        if not any(is_of_hub(present, mark) for mark in marks):
            kept.append(described)
            continue
        # One that is gone, or replaced by somebody else's, was not removed by us.
        with suppress(NotFound, Conflict):
            await member.delete(path, DeleteOptions(uid_of(present)))
            removed.append(described)
    return AgentRemoved(tuple(removed), tuple(kept))


async def _is_in_use(member: Client) -> bool:
    """Whether anything of somebody else lives in the agent's namespace."""
    for resource in _OCCUPANTS:
        for each in await member.list_objects(ResourcePath(resource, manifests.AGENT_NAMESPACE)):
            name = name_of(each)
            is_agents = resource == manifests.PODS and name.startswith(f"{manifests.AGENT}-")
            is_note = resource == manifests.CONFIG_MAPS and name.startswith(WITHDRAWN_PREFIX)
            is_ours = is_agents or is_note
            if not is_being_deleted(each) and name not in _EVERYWHERE and not is_ours:
                return True
    return False
