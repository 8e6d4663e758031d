"""`why` put together: the hub's objects read, each cluster concerned asked for its own.

Clusters are asked by way of the hub (`clusters/NAME/proxy`), as whoever runs the command and with
their rights. One that does not answer soon is a fact like any other.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, EXECUTION_PREFIX, WORKS, is_pull
from clusterspace.apis.works import cluster_of
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import (
    ApiError,
    ClusterError,
    Forbidden,
    NotFound,
    NotServed,
    ServiceUnavailable,
)
from clusterspace.fleet.execution.evidence import compare, noted_on, read_running
from clusterspace.fleet.execution.provenance import (
    Provenance,
    controller_of,
    differences,
    explain_provenance,
    manifest_for,
    work_key_of,
)
from clusterspace.fleet.gateway.routes import HUB, HUB_ALIAS, split
from clusterspace.fleet.propagation.explanation import (
    Evidence,
    Explanation,
    LiveNote,
    explain,
    find_named,
    gather,
    state_text,
)
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.times import format_time
from clusterspace.roots.clients import open_client

_LIVE_SECONDS: Final = 3.0
"""How long a cluster may take to say how an object is; people wait for it."""
_MOST_OWNERS: Final = 5


@dataclass(frozen=True, slots=True)
class MemberExplanation:
    """Whose an object of one member is, and what the hub knows of the template it is a copy of."""

    kind: str
    namespace: str
    name: str
    cluster: str
    provenance: Provenance | None = None
    """None when the cluster did not answer."""
    trouble: str = ""
    """Why it did not."""
    template: Explanation | None = None
    """Why the template is where it is, if there is one; of this cluster only."""


async def explain_object(
    kind: str, name: str, namespace: str, hub: ConnectionSettings
) -> Explanation | MemberExplanation:
    """Explain an object of the hub, or `NAME.clusterspace.CLUSTER` of a member."""
    named, inside = split(name), split(namespace)
    cluster = named.cluster or inside.cluster
    async with open_client(hub) as hub_client:
        served = await Discovery(hub_client.connection).served()
        if cluster and cluster not in (HUB, HUB_ALIAS):
            return await _explain_member(hub_client, served, kind, cluster, named.name, inside.name)
        resource = find_named(served, kind)
        place = resource.group_version_resource
        path = ResourcePath(place, inside.name if resource.namespaced else "", named.name)
        try:
            evidence = await gather(hub_client, path)
        except NotFound as error:
            hint = f"a member's is called {named.name}.clusterspace.CLUSTER"
            raise NotFound(f"{error.message} on the hub; {hint}") from error
        return await _explain_live(hub_client, path, evidence)


async def _explain_live(
    hub_client: ClusterClient, path: ResourcePath, evidence: Evidence
) -> Explanation:
    """Ask every cluster that has the object, or is to have it, and explain it with the answers."""
    concerned = {each.name for each in explain(evidence).clusters if each.work is not None}
    # An agent dials the hub, and the hub cannot ask back.
    asked = [each for each in evidence.clusters if name_of(each) in concerned and not is_pull(each)]
    works = {cluster_of(each): each for each in evidence.works}

    async def ask(cluster: str) -> LiveNote | None:
        try:
            async with (
                asyncio.timeout(_LIVE_SECONDS),
                _member_client(hub_client, cluster) as member,
            ):
                live = await member.find(path)
                taken_over = await _since_takeover(member, works.get(cluster), live)
        except TimeoutError:
            return LiveNote(trouble=f"no answer within {_LIVE_SECONDS:g}s")
        except Forbidden:
            return None  # they may not look there: what the hub knows has to do
        except (ApiError, ClusterError) as error:
            return LiveNote(trouble=_without_name(str(error), cluster))
        if live is None:
            return LiveNote()
        manifest = manifest_for(works.get(cluster), live)
        fields = () if manifest is None else differences(manifest, live)
        return LiveNote(
            is_there=True,
            reported=state_text(live.get("status") or {}),
            differs=tuple(each.field for each in fields),
            taken_over=taken_over,
        )

    async with asyncio.TaskGroup() as group:
        answering = {name: group.create_task(ask(name)) for name in map(name_of, asked)}
    answers = {name: task.result() for name, task in answering.items()}
    return explain(evidence, {name: each for name, each in answers.items() if each is not None})


async def _since_takeover(member: ClusterClient, work: Object | None, live: Object | None) -> str:
    """Return what became of what ran when an object was taken over; empty if it never was."""
    before = noted_on(work)
    if before is None or live is None:
        return ""
    now = SystemClock().now()
    return compare(before, await read_running(member, live, format_time(now)), now)


async def _explain_member(
    hub_client: ClusterClient,
    served: ServedResources,
    kind: str,
    cluster: str,
    name: str,
    namespace: str,
) -> MemberExplanation:
    """Explain an object of a member; where the member does not answer, by what the hub knows."""
    await hub_client.get(ResourcePath(CLUSTERS, name=cluster))
    try:
        async with (
            asyncio.timeout(2 * _LIVE_SECONDS),
            _member_client(hub_client, cluster) as member,
        ):
            there = await Discovery(member.connection).served()
            resource = find_named(there, kind)
            inside = namespace if resource.namespaced else ""
            live = await member.get(ResourcePath(resource.group_version_resource, inside, name))
            owners = await _owners_of(member, there, live)
            work = await _work_of(hub_client, cluster, owners[-1] if owners else live)
            taken_over = await _since_takeover(member, work, owners[-1] if owners else live)
    except (NotFound, NotServed, Forbidden):
        raise
    except (ApiError, ClusterError, TimeoutError) as error:
        late = f"no answer within {2 * _LIVE_SECONDS:g}s"
        trouble = late if isinstance(error, TimeoutError) else _without_name(str(error), cluster)
        resource = find_named(served, kind)
        inside = namespace if resource.namespaced else ""
        found = await _template_of(hub_client, served, resource.kind, inside, name, cluster)
        if found is None:
            raise ServiceUnavailable(f"{cluster} does not answer: {trouble}") from error
        return MemberExplanation(
            resource.kind, inside, name, cluster, trouble=trouble, template=found
        )
    root = owners[-1] if owners else live
    root_kind, root_namespace, root_name = str(root.get("kind")), namespace_of(root), name_of(root)
    provenance = explain_provenance(live, owners, work)
    if provenance.is_copy and taken_over:
        summary = f"{provenance.summary} It was {taken_over}."
        provenance = replace(provenance, summary=summary)
    template: Explanation | None = None
    if provenance.is_copy or provenance.is_conflict:
        template = await _template_of(
            hub_client, served, root_kind, root_namespace, root_name, cluster
        )
    return MemberExplanation(
        resource.kind, inside, name, cluster, provenance=provenance, template=template
    )


async def _work_of(hub_client: ClusterClient, cluster: str, root: Object) -> Object | None:
    """Return the Work that keeps an object of a member, or that wants its place."""
    space, work_name = work_key_of(root)
    if not work_name:
        # Nothing keeps it; a Work may want its place all the same.
        space = f"{EXECUTION_PREFIX}{cluster}"
        work_name = stamps.work_name(str(root.get("kind")), namespace_of(root), name_of(root))
    return await hub_client.find(ResourcePath(WORKS, space, work_name))


async def _owners_of(member: ClusterClient, served: ServedResources, live: Object) -> list[Object]:
    """Return what made an object on its cluster, its own owner first."""
    owners: list[Object] = []
    controller = controller_of(live)
    while controller is not None and len(owners) < _MOST_OWNERS:
        api_version, kind, name = controller
        resource = served.find_kind(GroupVersionKind.of(api_version, kind))
        inside = namespace_of(live) if resource is not None and resource.namespaced else ""
        if resource is None:
            break
        owner = await member.find(ResourcePath(resource.group_version_resource, inside, name))
        if owner is None:
            break
        owners.append(owner)
        controller = controller_of(owner)
    return owners


async def _template_of(
    hub_client: ClusterClient,
    served: ServedResources,
    kind: str,
    namespace: str,
    name: str,
    cluster: str,
) -> Explanation | None:
    """Explain the template of this name as far as one cluster is concerned; None without one."""
    resource = find_named(served, kind)
    path = ResourcePath(resource.group_version_resource, namespace, name)
    try:
        found = explain(await gather(hub_client, path))
    except NotFound:
        return None
    return replace(found, clusters=tuple(c for c in found.clusters if c.name == cluster))


def _member_client(
    hub_client: ClusterClient, cluster: str
) -> AbstractAsyncContextManager[ClusterClient]:
    hub = hub_client.connection.settings
    path = ResourcePath(CLUSTERS, name=cluster).path
    return open_client(replace(hub, cluster=cluster, server=f"{hub.server}{path}/proxy"))


def _without_name(sentence: str, cluster: str) -> str:
    return sentence.removeprefix(f"cluster {cluster}: ").removeprefix(f"{cluster}: ")
