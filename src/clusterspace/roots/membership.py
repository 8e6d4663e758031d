"""`join`, `unjoin`, `register` and `unregister` put together: clients opened, progress reported."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import execution_namespace, is_pull
from clusterspace.apis.member_clusters import FORCE_LEAVE, has_member_cluster
from clusterspace.apis.works import manifests_of
from clusterspace.client.endpoints import Network
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import (
    ApiError,
    CannotJoin,
    CannotLeave,
    ClusterError,
    ClusterspaceError,
    ClusterTimeout,
    ClusterUnreachable,
    UnusableKubeconfig,
)
from clusterspace.fleet.execution.contents import WITH_CONTENTS, read_contents, stamped_by
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.membership import leave, manifests
from clusterspace.fleet.membership.connections import read_settings
from clusterspace.fleet.membership.leave import (
    BeforeRemoval,
    Cleaner,
    refuse_other_registration,
    remove_agent,
)
from clusterspace.fleet.membership.member_access import refuse_expired
from clusterspace.fleet.membership.pull_join import PullJoin, RegisterRequest
from clusterspace.fleet.membership.push_join import JoinRequest, PushJoin, steps_of
from clusterspace.kube.objects import name_of
from clusterspace.roots.clients import command_rules, open_client, read_pem
from clusterspace.roots.tokens import authority_pins, forget_agent

Progress: TypeAlias = Callable[[str], object]
"""Called with a sentence about what was done, or is about to be."""

_CHECK_SECONDS: Final = 2.0
"""How long a member that is to leave by force may take to say whose it is."""


# -- Push: the hub reaches the member ----------------------------------------------------------


async def join_cluster(
    request: JoinRequest, hub: ConnectionSettings, progress: Progress, *, is_dry_run: bool = False
) -> None:
    """Join a cluster, or say what that would take."""
    certificate = read_pem(request.member.identity.certificate)
    refuse_expired(request.name, certificate, SystemClock().now())

    def report(sentence: str) -> None:
        progress(sentence)

    async with open_client(hub) as hub_client, open_client(request.member) as member:
        joining = PushJoin(request, hub_client, member, open_client, report)
        try:
            found = await joining.preflight()
        except (ClusterUnreachable, ClusterTimeout) as error:
            raise _at_address(error, request.name, request.member) from error
        if is_dry_run:
            for step in steps_of(request.name, found):
                progress(f"would {step}")
            return
        joined = await joining.join(found)
    done = "joined" if joined.is_new else "had joined before; its credentials are fresh"
    progress(f"cluster {request.name} {done}")


@dataclass(frozen=True, slots=True)
class UnjoinRequest:
    """Which cluster is to leave, and how."""

    name: str
    member: ConnectionSettings | None = None
    """The member's administrator; without one the hub cleans up with its own rights."""
    keeps_resources: bool = False
    is_forced: bool = False
    takes_contents: bool = False
    """Whether namespaces that came with Works go with all that is in them, whoever made it."""
    wait_seconds: float = 60.0
    member_cidrs: tuple[Network, ...] = ()
    """Where the member may be, for when the hub's own way in is used from here."""


async def unjoin_cluster(
    request: UnjoinRequest, hub: ConnectionSettings, progress: Progress, *, is_dry_run: bool = False
) -> None:
    """Take a cluster out, or say what that would remove."""
    async with AsyncExitStack() as stack:
        hub_client = await stack.enter_async_context(open_client(hub))
        cluster = await hub_client.get(manifests.cluster_path(request.name))
        if has_member_cluster(cluster):
            why = (
                "it joined by a MemberCluster: delete that, "
                f"and if its agent is dead, annotate it with {FORCE_LEAVE}=true"
            )
            raise CannotLeave(request.name, why)
        if is_pull(cluster) and not request.is_forced:
            # Its agent would be left behind, running.
            why = "it registered itself: use `clusterspace unregister`, which ends its agent too"
            raise CannotLeave(request.name, why)
        await _list_placed(hub_client, request, progress)

        async def open_member() -> ClusterClient:
            # As the member's administrator if we can, else with the rights the hub has there.
            rules = command_rules(hub, request.member_cidrs)
            settings = request.member or await read_settings(hub_client, cluster, rules)
            return await stack.enter_async_context(open_client(settings))

        if not request.is_forced and not request.keeps_resources:
            await _list_contents(hub_client, request, open_member, progress)
        if is_dry_run:
            return

        async def clean(hub_id: str, before_removal: BeforeRemoval) -> object:
            member = await open_member()
            cleaner = Cleaner(member, is_administrator=request.member is not None)
            cleaned = await cleaner.clean(request.name, hub_id, before_removal)
            _report_cleaned(cleaned.removed, cleaned.foreign, progress)
            return cleaned

        if request.keeps_resources:
            await leave.keep_resources(hub_client, request.name)
        if request.takes_contents:
            path = manifests.cluster_path(request.name)
            await commit_change(hub_client, path, leave.annotated(WITH_CONTENTS, "true"))
        leaving = leave.Leave(hub_client, request.name, clean)
        await leaving.begin()
        if request.is_forced:
            _report_left_behind(request.name, await leaving.force(), progress)
        else:
            progress("withdrawing, cleaning the member, forgetting")
            await leaving.finish(SystemClock(), request.wait_seconds, progress)
    progress(f"cluster {request.name} has left")


async def _list_placed(hub: ClusterClient, request: UnjoinRequest, progress: Progress) -> None:
    works = await hub.list_objects(manifests.works_path(request.name))
    placed = sorted([*leave.placed_objects(works), *leave.unreported_objects(works)])
    if not placed:
        progress("nothing is placed on the member")
        return
    fate = "stay on the member" if request.keeps_resources else "are removed from the member"
    if request.is_forced and not request.keeps_resources:
        fate = "are abandoned where they are"
    progress(f"{len(placed)} placed objects {fate}:")
    for each in placed:
        progress(f"  {each}")


async def _list_contents(
    hub: ClusterClient,
    request: UnjoinRequest,
    open_member: Callable[[], Awaitable[ClusterClient]],
    progress: Progress,
) -> None:
    """Say what is in the namespaces that would go, besides what the hub placed there."""
    works = await hub.list_objects(manifests.works_path(request.name))
    placed = [each for work in works for each in manifests_of(work)]
    namespaces = sorted(name_of(each) for each in placed if each.get("kind") == "Namespace")
    work_of = stamped_by(execution_namespace(request.name))
    for namespace in namespaces:
        try:
            member = await open_member()
            live = await member.find(manifests.namespace_path(namespace))
            if live is None or not is_managed(live):
                continue  # it was there before, and is left to whoever made it
            contents = await read_contents(member, namespace, lambda each: bool(work_of(each)))
        except (ApiError, ClusterError, UnusableKubeconfig) as error:
            progress(f"what is in namespaces of the member cannot be listed: {error}")
            return
        if not contents.reasons:
            continue
        fate = "goes with what this hub did not place there" if request.takes_contents else "stays"
        advice = "" if request.takes_contents else " (--with-contents would take all along)"
        progress(f"namespace {namespace} {fate}{advice}:")
        for each in contents.foreign:
            progress(f"  {each}")
        for each in contents.unseen:
            progress(f"  perhaps more, of {each}")


# -- Pull: the member's agent dials the hub ----------------------------------------------------


async def register_cluster(
    request: RegisterRequest, member: ConnectionSettings, progress: Progress
) -> None:
    """Register a cluster with a hub, from the cluster's side."""
    refuse_expired(request.name, read_pem(member.identity.certificate), SystemClock().now())

    def report(sentence: str) -> None:
        progress(sentence)

    async with open_client(member) as member_client:
        try:
            await PullJoin(request, member_client, open_client, report).register()
        except (ClusterUnreachable, ClusterTimeout) as error:
            raise _at_address(error, request.name, member) from error
    progress(f"cluster {request.name} is registered")


@dataclass(frozen=True, slots=True)
class UnregisterRequest:
    """Which cluster is to be unregistered, and how."""

    name: str
    member: ConnectionSettings | None
    """The member's administrator; a dead member may do without."""
    is_forced: bool = False
    wait_seconds: float = 60.0


async def unregister_cluster(
    request: UnregisterRequest, hub: ConnectionSettings, progress: Progress
) -> None:
    """Take a Pull cluster out of the fleet, and its agent down."""
    name, marks = request.name, set(authority_pins(hub))
    async with AsyncExitStack() as stack:
        hub_client = await stack.enter_async_context(open_client(hub))
        member = request.member and await stack.enter_async_context(open_client(request.member))
        if member is not None:
            # The wrong member is refused before anything is touched; a dead one cannot be asked.
            try:
                async with asyncio.timeout(_CHECK_SECONDS if request.is_forced else None):
                    await refuse_other_registration(member, name, marks)
            except (ApiError, ClusterError, TimeoutError):
                if not request.is_forced:
                    raise

        async def remove_from_member(*_: object) -> None:
            if member is None:
                raise CannotLeave(name, "no kubeconfig of the member was given")
            outcome = await remove_agent(member, name, marks)
            _report_cleaned(outcome.removed, outcome.kept, progress)

        async def clean_nothing(*_: object) -> None:
            """Leave the member alone: its agent must live until the hub has forgotten it."""

        cluster = await hub_client.find(manifests.cluster_path(name))
        if cluster is None:
            progress("the hub does not know the cluster any more")
            await remove_from_member()
        elif not is_pull(cluster):
            raise CannotLeave(name, "the hub reaches it by itself (Push): use unjoin")
        elif has_member_cluster(cluster):
            raise CannotLeave(name, "it joined by a MemberCluster: delete that first")
        elif request.is_forced:
            leaving = leave.Leave(hub_client, name, remove_from_member)
            await leaving.begin()
            _report_left_behind(name, await leaving.force(), progress)
        else:
            leaving = leave.Leave(hub_client, name, clean_nothing)
            await leaving.begin()
            progress("withdrawing what was placed, and forgetting the cluster on the hub")
            await leaving.finish(SystemClock(), request.wait_seconds, progress)
            # A crash right here leaves an agent whose registration is gone on the hub;
            # unregistering again finds the cluster unknown, and takes it down.
            await remove_from_member()
        await forget_agent(name, hub_client)
    progress(f"cluster {name} is unregistered")


def _at_address(error: ClusterError, name: str, member: ConnectionSettings) -> ClusterspaceError:
    """Return an error with the address that was tried, if it is about the member."""
    if error.cluster != name:
        return error
    tried = f"{error.why} at {member.server}"
    return CannotJoin(name, f"{tried}, where its kubeconfig says it is; is that reached from here?")


# -- what is reported of both ------------------------------------------------------------------


def _report_cleaned(removed: Iterable[object], kept: Iterable[object], progress: Progress) -> None:
    for each in removed:
        progress(f"removed from the member: {each}")
    for each in kept:
        progress(f"kept on the member, for this hub did not make it: {each}")


def _report_left_behind(cluster_name: str, left: list[str], progress: Progress) -> None:
    """Say what a forced leave could not clean, and where that is written down."""
    if not left:
        return
    path = manifests.left_behind_path(cluster_name)
    progress(f"left behind, and written down in configmap {path.key}:")
    for each in left:
        progress(f"  {each}")
