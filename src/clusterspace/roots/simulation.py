"""`simulate`, and the plans of `drain` and `rebalance`: live objects read, nothing written.

What a file would have the hub store is found out by dry runs: the hub checks and completes the
objects as it would, and keeps none of them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    CLUSTER_PROPAGATION_POLICY,
    CLUSTER_TAINT_POLICIES,
    PROPAGATION_POLICIES,
    PROPAGATION_POLICY,
)
from clusterspace.apis.quotas import FEDERATED_RESOURCE_QUOTAS
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, Reader, WriteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import NotServed, UnusableConfiguration
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.propagation.bindings import (
    PolicyIndex,
    binding_path,
    claim_of,
    new_binding,
    read_policy,
)
from clusterspace.fleet.propagation.detector import PRIORITY_CLASSES, Size, bound
from clusterspace.fleet.propagation.simulation import (
    Leaving,
    LiveFleet,
    Outcome,
    Preview,
    failed,
    placed_first,
)
from clusterspace.fleet.propagation.templates import is_template
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.roots.clients import open_client
from clusterspace.roots.interpreting import interpreting

_POLICY_KINDS: Final = (PROPAGATION_POLICY, CLUSTER_PROPAGATION_POLICY)


async def read_bindings(hub: Reader) -> tuple[Object, ...]:
    """Read the bindings of all workloads."""
    bindings = await hub.list_objects(ResourcePath(RESOURCE_BINDINGS))
    return (*bindings, *await hub.list_objects(ResourcePath(CLUSTER_RESOURCE_BINDINGS)))


async def read_works(hub: Reader, names: Iterable[str]) -> tuple[Object, ...]:
    """Read the Works of some clusters."""
    spaces = (ResourcePath(WORKS, execution_namespace(name)) for name in names)
    return tuple([each for space in spaces for each in await hub.list_objects(space)])


async def read_fleet(hub: Reader, left: Sequence[str] = ()) -> LiveFleet:
    """Read all that decides where workloads are; the Works of clusters that are to be left."""
    return LiveFleet(
        clusters=tuple(await hub.list_objects(ResourcePath(CLUSTERS))),
        bindings=await read_bindings(hub),
        works=await read_works(hub, left),
        leases=tuple(await hub.list_objects(ResourcePath(LEASES, CLUSTER_NAMESPACE))),
        taint_policies=tuple(await hub.list_objects(ResourcePath(CLUSTER_TAINT_POLICIES))),
        quotas=tuple(await hub.list_objects(ResourcePath(FEDERATED_RESOURCE_QUOTAS))),
    )


async def simulate_failover(names: Sequence[str], hub: ConnectionSettings) -> Leaving:
    """Return what would happen if clusters fell silent now; NotFound for one there is not."""
    async with open_client(hub) as hub_client:
        for name in names:
            await hub_client.get(ResourcePath(CLUSTERS, name=name))
        return failed(await read_fleet(hub_client, names), names, SystemClock())


async def simulate_files(
    objects: Sequence[Object], hub: ConnectionSettings, *, most: int | None = None
) -> tuple[Preview, ...]:
    """Return where workloads would be placed if these policies, and objects, were applied.

    UnusableConfiguration if they are about more than `most` workloads.
    """
    if not any(each.get("kind") in _POLICY_KINDS for each in objects):
        wanted = " or ".join(_POLICY_KINDS)
        raise UnusableConfiguration(f"there is no {wanted} in what is given")
    async with open_client(hub) as hub_client:
        served = await Discovery(hub_client.connection).served()
        dried = [await _dry(hub_client, served, each) for each in objects]
        policies = [each for each in dried if each.get("kind") in _POLICY_KINDS]
        templates = [each for each in dried if each.get("kind") not in _POLICY_KINDS]
        templates += await _selected(hub_client, served, policies, templates)
        if most is not None and len(templates) > most:
            raise UnusableConfiguration(
                f"the policies select {len(templates)} objects, and {most} are tried at once here: "
                "`clusterspace simulate` takes any number"
            )
        async with interpreting(hub_client) as interpreter:
            return await _place(hub_client, interpreter, policies, templates)


async def _dry(hub: ClusterClient, served: ServedResources, given: Object) -> Object:
    """Return an object as the hub would store it."""
    kind = GroupVersionKind.of(str(given.get("apiVersion")), str(given.get("kind")))
    resource = served.find_kind(kind)
    if resource is None:
        raise NotServed(f"the hub serves no {kind.kind} of {given.get('apiVersion')}")
    place = resource.group_version_resource
    namespace = (namespace_of(given) or "default") if resource.namespaced else ""
    path = ResourcePath(place, namespace, name_of(given))
    wanted = with_metadata(given, namespace=namespace) if namespace else given
    options = WriteOptions(is_dry_run=True)
    existing = await hub.find(path)
    if existing is None:
        stored = await hub.create(path.collection, wanted, options)
    else:
        # As `kubectl replace`: what only the hub has set, marks and versions, stays.
        kept = {**metadata_of(existing), **metadata_of(wanted)}
        kept["labels"] = {
            **(metadata_of(existing).get("labels") or {}),
            **(metadata_of(wanted).get("labels") or {}),
        }
        kept["resourceVersion"] = resource_version_of(existing)
        stored = await hub.update(path, {**wanted, "metadata": kept}, options)
    return {**stored, "apiVersion": given.get("apiVersion"), "kind": given.get("kind")}


async def _selected(
    hub: Reader, served: ServedResources, policies: Sequence[Object], given: Sequence[Object]
) -> list[Object]:
    """Return the objects of the hub that policies select, but for those that were given."""
    found: dict[str, Object] = {}
    known = {uid_of(each) for each in given}
    for policy in map(read_policy, policies):
        if policy.problem:
            raise UnusableConfiguration(f"policy {policy.key} cannot be read: {policy.problem}")
        for selector in policy.selectors:
            kind = GroupVersionKind.of(selector.api_version, selector.kind)
            resource = served.find_kind(kind)
            if resource is None:
                raise NotServed(
                    f"policy {policy.key} selects {selector.kind} of {selector.api_version}, "
                    "which the hub does not serve"
                )
            inside = policy.claim.namespace or selector.namespace if resource.namespaced else ""
            place = ResourcePath(resource.group_version_resource, inside)
            for each in await hub.list_objects(place):
                head = {"apiVersion": selector.api_version, "kind": selector.kind}
                template = {**each, **head}
                if policy.may_claim(template) and uid_of(each) not in known:
                    found[uid_of(each)] = template
    return list(found.values())


async def _place(
    hub: Client,
    interpreter: Interpreter,
    policies: Sequence[Object],
    templates: Sequence[Object],
) -> tuple[Preview, ...]:
    index = PolicyIndex()
    stored = await hub.list_objects(ResourcePath(CLUSTER_PROPAGATION_POLICIES))
    stored += await hub.list_objects(ResourcePath(PROPAGATION_POLICIES))
    for each in (*stored, *policies):
        index.put(read_policy(each))
    ours = {read_policy(each).key for each in policies}
    bindings: list[Object] = []
    others: list[Preview] = []
    for template in templates:
        chosen = index.choose(template, claim_of(template))
        if not is_template(template) or chosen is None or chosen.key not in ours:
            kept = "it stays on the hub" if chosen is None else f"it follows policy {chosen.key}"
            others.append(
                Preview(
                    kind_of(template).kind,
                    namespace_of(template),
                    name_of(template),
                    Outcome.STAYS,
                    {},
                    {},
                    kept,
                )
            )
            continue
        binding = await hub.find(binding_path(template)) or new_binding(template, "simulated")
        name = str(find_at(chosen.spec, "schedulePriority", "priorityClassName") or "")
        found = await hub.find(ResourcePath(PRIORITY_CLASSES, name=name)) if name else None
        priority = None if found is None else int(found.get("value") or 0)
        replicas = await interpreter.replicas(template)
        size = Size(replicas, await interpreter.components(template))
        bindings.append(
            bound(binding, template, chosen, size, takes_version=True, priority=priority)
        )
    clusters = await hub.list_objects(ResourcePath(CLUSTERS))
    beside = await read_bindings(hub)
    quotas = await hub.list_objects(ResourcePath(FEDERATED_RESOURCE_QUOTAS))
    # Values in, values out: beside the event loop, for a server that has others to answer.
    placed = await asyncio.to_thread(
        placed_first, bindings, clusters, SystemClock(), beside, quotas
    )
    return (*placed, *others)
