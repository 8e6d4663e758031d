"""What a namespace of a member holds, and whose that is: it is deleted only with what is ours.

Deleting a namespace deletes all that is in it, of every kind. A namespace came with a Work because
something was to go into it, and people may have put more into it since. So before it goes, all of
it is listed, and divided:

    ours         stamped by a Work of this hub that is still there: withdrawn first, by that Work
    made by it   what every namespace has, and what controllers made for what is ours or goes
    leaving      what was made for what is gone: the member's garbage collector is on its way to it
    foreign      everything else: the namespace stays
    unseen       kinds that could not be listed: they may hold anything, so it stays, too
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, NAMESPACES_KEPT, conditions_of
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.commit import commit_change
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import ApiError, ClusterError, NotFound
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    Condition,
    find_condition,
    is_true,
    set_condition,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupResource, GroupVersionResource, ResourceInfo

_log = structlog.get_logger(__name__)

WITH_CONTENTS: Final = "clusterspace.io/delete-with-contents"
"""Annotation of a Namespace, of its Work or of a Cluster: `true` lets a namespace go with all that
is in it, whoever made that."""

NAMESPACE_KEPT: Final = "NamespaceKept"
"""Reason of the event that tells of one."""

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")

MOST_NAMED: Final = 5
"""How many objects a message names; it counts the others."""

COLLECTOR_SECONDS: Final = 120.0
"""How long a namespace waits for what the member's garbage collector should take."""

_METADATA_ONLY: Final = (
    ("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"),
)
_AT_ONCE: Final = 8
_LISTED: Final = frozenset({"list", "delete"})
"""What cannot be deleted, such as measurements of pods, is no object that could be lost."""

_EVENTS: Final = frozenset({GroupResource("", "events"), GroupResource("events.k8s.io", "events")})
_ENDPOINTS: Final = GroupResource("", "endpoints")
_SERVICES: Final = GroupResource("", "services")
_EVERYWHERE: Final = frozenset(
    {
        (GroupResource("", "serviceaccounts"), "default"),
        (GroupResource("", "configmaps"), "kube-root-ca.crt"),
        (GroupResource("", "configmaps"), "istio-ca-root-cert"),
        (GroupResource("", "configmaps"), "openshift-service-ca.crt"),
    }
)
"""What every namespace of some cluster has, whoever uses it; it comes back when it is deleted."""

_ACCOUNT: Final = "kubernetes.io/service-account.name"
_MADE_ENDPOINTS: Final = "endpoints.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class ContentObject:
    """An object in a namespace, as far as its metadata tells."""

    resource: GroupResource
    metadata: Object

    def __str__(self) -> str:
        return f"{self.resource} {name_of(self.metadata)}"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a namespace holds, divided by whose it is; what is on its way out counts as gone."""

    ours: tuple[ContentObject, ...] = ()
    made: tuple[ContentObject, ...] = ()
    leaving: tuple[ContentObject, ...] = ()
    foreign: tuple[ContentObject, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many objects would go with the namespace, as far as could be seen."""
        return len(self.ours) + len(self.made) + len(self.leaving) + len(self.foreign)

    @property
    def uncollected(self) -> "Contents":
        """The same where nobody collects what has no owner any more: it is foreign."""
        return replace(self, leaving=(), foreign=(*self.leaving, *self.foreign))

    @property
    def reasons(self) -> str:
        """What keeps the namespace, in words; empty when nothing does."""
        named = [str(each) for each in self.foreign[:MOST_NAMED]]
        more = len(self.foreign) - len(named)
        words = [*named, *([f"{more} more"] if more else [])]
        words += [f"unknown {each}" for each in self.unseen[:MOST_NAMED]]
        return ", ".join(words)


async def read_contents(
    member: ClusterClient, namespace: str, is_ours: Callable[[Object], bool]
) -> Contents:
    """List everything in a namespace, live; ClusterError when the member cannot be asked at all."""
    # Asked anew each time: a kind that came a minute ago may have objects there already.
    served = await Discovery(member.connection).served()
    chosen: dict[GroupResource, ResourceInfo] = {}
    for info in served.resources:
        resource = GroupResource(info.group, info.plural)
        if info.namespaced and frozenset(info.verbs) >= _LISTED and resource not in _EVENTS:
            chosen.setdefault(resource, info)
    listed = {(info.group, info.kind) for info in chosen.values()}
    unseen = [f"{each} (not in discovery)" for each in served.failed]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def list_one(resource: GroupResource, info: ResourceInfo) -> list[ContentObject]:
        async with gate:
            try:
                path = ResourcePath(info.group_version_resource, namespace)
                return [
                    ContentObject(resource, each) async for each in _list_metadata(member, path)
                ]
            except ApiError as error:
                unseen.append(f"{resource} ({error.message})")
                listed.discard((info.group, info.kind))
            except ClusterError as error:
                # A value, not an exception: out of a group of tasks it would come as a group.
                lost.append(error)
            return []

    lost: list[ClusterError] = []
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(list_one(resource, info), name=f"list {resource} in {namespace}")
            for resource, info in chosen.items()
        ]
    if lost:
        raise lost[0]  # tried again later: a member that does not answer decides nothing
    # One object may be served by several groups, and is the same by its UID.
    objects = {uid_of(each.metadata): each for task in tasks for each in task.result()}
    return divide(objects.values(), unseen, is_ours, frozenset(listed))


async def _list_metadata(member: ClusterClient, path: ResourcePath) -> AsyncGenerator[Object]:
    """Yield the objects of a collection without what is in them: Secrets stay where they are."""
    async for page in member.pages(path, headers=_METADATA_ONLY):
        for item in page.items:
            yield {"metadata": metadata_of(item.decode())}


def divide(
    objects: Iterable[ContentObject],
    unseen: Iterable[str],
    is_ours: Callable[[Object], bool],
    listed: frozenset[tuple[str, str]] = frozenset(),
) -> Contents:
    """Divide what was found by whose it is; `listed` has group and kind of all that was looked for.

    Works are withdrawn one after the other, and controllers are not asked to hurry: of a Deployment
    that went with its Work and of its ReplicaSet there may be nothing left, and its pods are still
    there. They are nobody's: every owner they name is of a kind that was listed, and is gone.
    """
    found = sorted(objects, key=str)
    ours = [each for each in found if is_ours(each.metadata) and not _goes(each)]
    services = {name_of(each.metadata) for each in found if each.resource == _SERVICES}
    # What goes, or goes with us, takes along what controllers made for it; and so on downwards.
    followed = {uid_of(each.metadata) for each in found if _goes(each)}
    followed |= {uid_of(each.metadata) for each in ours}
    others = [each for each in found if uid_of(each.metadata) not in followed]
    made, others = _taken_along(others, lambda each: _is_made(each, services), followed)
    present = {uid_of(each.metadata) for each in found}
    leaving, others = _taken_along(others, lambda each: _is_orphan(each, present, listed), set())
    return Contents(tuple(ours), tuple(made), tuple(leaving), tuple(others), tuple(unseen))


def _taken_along(
    objects: list[ContentObject], begins: Callable[[ContentObject], bool], followed: set[str]
) -> tuple[list[ContentObject], list[ContentObject]]:
    """Part objects that begin something, or are owned by what is followed, from the others."""
    taken: list[ContentObject] = []
    while more := [each for each in objects if begins(each) or _owners(each) & followed]:
        taken += more
        followed = followed | {uid_of(each.metadata) for each in more}
        objects = [each for each in objects if uid_of(each.metadata) not in followed]
    return taken, objects


def _is_orphan(
    content: ContentObject, present: set[str], listed: frozenset[tuple[str, str]]
) -> bool:
    """Whether an object has owners, and all of them would have been found if there were any."""
    owners: list[Object] = metadata_of(content.metadata).get("ownerReferences") or []
    kinds = {
        (str(each.get("apiVersion")).rpartition("/")[0], str(each.get("kind"))) for each in owners
    }
    return bool(owners) and kinds <= listed and not _owners(content) & present


def _goes(content: ContentObject) -> bool:
    return is_being_deleted(content.metadata)


def _is_made(content: ContentObject, services: set[str]) -> bool:
    """Whether an object is in every namespace, or is made for another one without an owner."""
    metadata, name = content.metadata, name_of(content.metadata)
    is_default_token = annotations_of(metadata).get(_ACCOUNT) == "default"
    if is_default_token or (content.resource, name) in _EVERYWHERE:
        return True
    is_endpoints = content.resource == _ENDPOINTS
    return is_endpoints and (name in services or _MADE_ENDPOINTS in labels_of(metadata))


def _owners(content: ContentObject) -> set[str]:
    references = metadata_of(content.metadata).get("ownerReferences") or ()
    return {str(each.get("uid")) for each in references}


def stamped_by(execution_namespace: str) -> Callable[[Object], str]:
    """Return what tells the name of the Work of this hub that stamped an object; empty if none."""

    def work_of(metadata: Object) -> str:
        annotations = annotations_of(metadata)
        is_here = annotations.get(stamps.WORK_NAMESPACE) == execution_namespace
        return annotations.get(stamps.WORK_NAME, "") if is_here and is_managed(metadata) else ""

    return work_of


class KeptNamespaces:
    """Says on the Cluster which namespaces were left to others, and what keeps them."""

    def __init__(self, hub: Client, cluster_name: str, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._path = ResourcePath(CLUSTERS, name=cluster_name)
        self._events = events
        self._clock = clock
        self._waits_since: dict[str, float] = {}

    def waits_for_collector(self, namespace: str, contents: Contents) -> bool:
        """Whether the member's garbage collector may still take what keeps a namespace.

        Counted from the first time it was seen. Where nobody collects, it counts as foreign then.
        """
        if not contents.leaving or contents.reasons:
            self._waits_since.pop(namespace, None)
            return False
        now = self._clock.monotonic()
        return now < self._waits_since.setdefault(namespace, now) + COLLECTOR_SECONDS

    async def note(self, namespace: str, contents: Contents) -> None:
        """Say what keeps a namespace, by an event and a condition of the Cluster."""
        why = f"namespace {namespace} stays, and is not ours any more: {contents.reasons}"
        _log.warning("namespace kept", namespace=namespace, cluster=self._path.name, reason=why)

        def noted(cluster: Object) -> Object:
            existing = find_condition(conditions_of(cluster), NAMESPACES_KEPT) or {}
            # The last few: who has looked says `resume`, and the list begins anew.
            lines = str(existing.get("message") or "").split("; ") if is_kept(cluster) else []
            others = [each for each in lines if not each.startswith(f"namespace {namespace} ")]
            message = "; ".join([*others[-4:], why])
            condition = Condition(NAMESPACES_KEPT, TRUE, "ForeignObjects", message)
            changed = set_condition(conditions_of(cluster), condition, self._clock.now())
            return with_value(cluster, changed.conditions, "status", "conditions")

        # A Cluster that is gone has nobody to be told.
        with suppress(NotFound):
            cluster = await commit_change(self._hub, self._path, noted)
            self._events.record(cluster, NAMESPACE_KEPT, why, is_warning=True)


def is_kept(cluster: Object) -> bool:
    """Whether namespaces were left to others on a member since a person last looked."""
    return is_true(conditions_of(cluster), NAMESPACES_KEPT)


def seen_condition() -> Condition:
    """Return the condition of a Cluster whose kept namespaces a person has seen."""
    return Condition(NAMESPACES_KEPT, FALSE, "Seen", "A person has seen which namespaces stayed")
