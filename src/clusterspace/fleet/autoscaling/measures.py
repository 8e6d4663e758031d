"""What the pods of one workload use, cluster by cluster.

Asked are the members themselves, each for the pods behind a selector and for what its metrics APIs
say of them. A member may be away, have no metrics, or lie: what it says is read as numbers or not
at all, and whoever counts learns of which pods nothing is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.client.requests import ApiRequest, Query, ResourcePath, path_of
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.errors import ApiError, ClusterError, MalformedQuantity
from clusterspace.kube.conditions import is_true
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupVersionResource

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; ClusterError when there can be none."""

PODS: Final = GroupVersionResource("", "v1", "pods")
_ASK_SECONDS: Final = 10.0
_MOST_BYTES: Final = 16 * 1024 * 1024
_OVER: Final = frozenset({"Succeeded", "Failed"})
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Pod:
    """As much of a pod as an autoscaler needs."""

    name: str
    is_ready: bool
    requests: Mapping[str, Mapping[str, int]]
    """What each container asks for, by resource."""


@dataclass(slots=True)
class MemberPods:
    """The pods of a workload in one cluster, and what is known of their load."""

    cluster: str
    expected: int
    """How many there should be, as the hub had them divided."""
    pods: tuple[Pod, ...] = ()
    usage: Mapping[str, Mapping[str, Mapping[str, int]]] = field(
        default_factory=dict[str, Mapping[str, Mapping[str, int]]]
    )
    """The name of a pod to its containers to what each uses, by resource."""
    trouble: str = ""
    """Why nothing is known; empty when the cluster answered."""
    unmeasured: str = ""
    """Why there is no usage, though there are pods."""
    client: ClusterClient | None = None


def amount_of(resource: str, text: object) -> int | None:
    """Return a quantity as thousandths of a processor or as whole units; None for nonsense."""
    try:
        quantity = parse_quantity(str(text))
    except MalformedQuantity:
        return None
    return max(0, quantity.milli if resource == _CPU else quantity.whole)


def milli_of(text: object) -> int | None:
    """Return a quantity in thousandths; None for nonsense."""
    try:
        return parse_quantity(str(text)).milli
    except MalformedQuantity:
        return None


def requests_in(pod_spec: Object) -> dict[str, dict[str, int]]:
    """Return what each container of a pod asks for, by resource."""
    found: dict[str, dict[str, int]] = {}
    for container in cast("list[Object]", pod_spec.get("containers") or []):
        asked = cast("Object", find_at(container, "resources", "requests") or {})
        amounts = {resource: amount_of(resource, text) for resource, text in asked.items()}
        found[str(container.get("name"))] = {
            resource: amount for resource, amount in amounts.items() if amount is not None
        }
    return found


async def look_at(
    reach: Reach, cluster: Object | None, member: MemberPods, place: ResourcePath, selector: str
) -> None:
    """Read the pods of a workload in one cluster; note why there is nothing to know, if so."""
    if cluster is None:
        member.trouble = "it is not a cluster of this fleet any more"
        return
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            member.client = client = await reach(cluster)
            listed = await client.list_objects(place, ListOptions(label_selector=selector))
    except TimeoutError:
        member.trouble = f"it did not answer within {_ASK_SECONDS:.0f} s"
        return
    except (ApiError, ClusterError) as error:
        member.trouble = str(error)
        return
    member.pods = tuple(
        Pod(
            name_of(each),
            is_true(find_at(each, "status", "conditions"), "Ready"),
            requests_in(cast("Object", each.get("spec") or {})),
        )
        for each in listed
        if not is_being_deleted(each) and find_at(each, "status", "phase") not in _OVER
    )


async def read_usage(member: MemberPods, namespace: str, selector: str) -> None:
    """Ask metrics.k8s.io of a cluster what the pods behind a selector use."""
    path = "/apis/metrics.k8s.io/v1beta1" + path_of("namespaces", namespace, "pods")
    try:
        items = await _items(member, path, (("labelSelector", selector),))
    except (ApiError, ClusterError) as error:
        member.unmeasured = str(error)
        return
    usage: dict[str, dict[str, dict[str, int]]] = {}
    for item in items:
        containers = usage.setdefault(name_of(item), {})
        for each in _objects(item.get("containers")):
            used = find_at(each, "usage")
            amounts = {
                resource: amount_of(resource, text)
                for resource, text in (
                    cast("Object", used) if isinstance(used, dict) else {}
                ).items()
            }
            containers[str(each.get("name"))] = {
                resource: amount for resource, amount in amounts.items() if amount is not None
            }
    member.usage = usage


async def read_values(
    member: MemberPods, api: str, segments: Sequence[str], selector: str, query: Query = ()
) -> dict[str, int]:
    """Ask a custom or external metrics API; return the values in thousandths, by what they are of.

    Values that describe no object are of the empty name, added up as Kubernetes adds them.
    """
    asked = (*query, *((("labelSelector", selector),) if selector else ()))
    found: dict[str, int] = {}
    for item in await _items(member, f"/apis/{api}" + path_of(*segments), asked):
        value = milli_of(item.get("value"))
        if value is not None:
            name = str(find_at(item, "describedObject", "name") or "")
            found[name] = found.get(name, 0) + value
    return found


async def _items(member: MemberPods, path: str, query: Query) -> Iterable[Object]:
    if member.client is None:
        raise ClusterError(member.cluster, member.trouble or "it was not asked")
    request = ApiRequest(
        "GET", path, query, seconds=_ASK_SECONDS, most_bytes=_MOST_BYTES, is_repeated=False
    )
    answer = await member.client.connection.ask(request)
    try:
        body: Any = msgspec.json.decode(answer.body)
    except UNREADABLE:
        return ()
    # Not `list_objects`: these lists have no resourceVersion, and a member may have sent anything.
    return _objects(find_at(body, "items") if isinstance(body, dict) else None)


def _objects(value: object) -> list[Object]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", each) for each in listed if isinstance(each, dict)]
