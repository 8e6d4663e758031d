"""Which resources a cluster serves, cached with its expiry.

Servers since 1.27 tell all of it in two documents; older ones are asked group by group. When a
cluster cannot be asked, what it last said is still the best answer there is.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest, unreadable
from clusterspace.errors import ApiError, ClusterError, NotServed
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import (
    GroupVersion,
    GroupVersionKind,
    GroupVersionResource,
    ResourceInfo,
    Subresource,
    parse_api_version,
)

OWN_BUILD: Final = "+clusterspace."
"""What the version of an API server of ours has in it."""

FRESH_SECONDS: Final = 60.0
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ACCEPT: Final = (("Accept", f"{_AGGREGATED},application/json"),)
_ROOTS: Final = ("/api", "/apis")
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Ten thousand custom kinds take less."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9*._/-]{0,253}")
_AT_ONCE: Final = 8
_NONSENSE: Final = (AttributeError, LookupError, TypeError, ValueError)
"""What reading raises for a text where an object should be, and the like: a check of every field
would be longer than all that is read."""


@dataclass(frozen=True, slots=True)
class ServedResources:
    """What a cluster serves; `failed` are group versions it could not tell of just now."""

    resources: tuple[ResourceInfo, ...]
    failed: tuple[GroupVersion, ...] = ()

    def find_resource(self, resource: GroupVersionResource) -> ResourceInfo | None:
        """Return a resource by the name URLs use, or None."""
        named = (each for each in self.resources if each.group_version_resource == resource)
        return next(named, None)

    def find_kind(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return a resource by the name its objects use, or None."""
        return next((each for each in self.resources if each.group_version_kind == kind), None)


async def is_own_server(connection: Connection) -> bool:
    """Whether an API server is one of ours, which knows more than Kubernetes' own; anybody may ask.

    What is no JSON, or says nothing of its version, is none of ours.
    """
    answer = await connection.ask(ApiRequest("GET", "/version"))
    try:
        said = msgspec.json.decode(answer.body, type=dict[str, Any])
    except UNREADABLE:
        return False
    return OWN_BUILD in str(said.get("gitVersion") or "")


class Discovery:
    """Asks one cluster what it serves, at most once a minute, or as often as told.

    Asking often is cheap where the cluster tells all in two documents and says when those are as
    before: then nothing is sent, and nothing is read again. Of older servers, which have a document
    for every group version, those are looked at once a minute unless the list of them changed.
    """

    def __init__(self, connection: Connection, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._connection = connection
        self._fresh_seconds = fresh_seconds
        self._cached: ServedResources | None = None
        self._answers: dict[str, Answer] = {}
        self._stale_at = 0.0
        self._ask_all_at = 0.0
        self._is_aggregated = False
        self._one_at_a_time = asyncio.Lock()

    async def served(self) -> ServedResources:
        """Return the resources the cluster serves; the last known ones if it cannot be asked."""
        async with self._one_at_a_time:
            if self._cached is not None and self._connection.clock.monotonic() < self._stale_at:
                return self._cached
            try:
                self._cached = await self._ask()
            except (ApiError, ClusterError):
                if self._cached is None:
                    raise
            self._stale_at = self._connection.clock.monotonic() + self._fresh_seconds
            return self._cached

    async def get_resource(self, kind: GroupVersionKind) -> ResourceInfo:
        """Return the resource of a kind; NotServed, after one look that is fresh, if there is none.

        A kind may have been installed a moment ago, so "none" is never the word of the cache.
        """
        found = (await self.served()).find_kind(kind)
        if found is None:
            self.forget()
            found = (await self.served()).find_kind(kind)
        if found is None:
            error = NotServed(f"the cluster does not serve {kind}")
            error.cluster = self._connection.cluster
            raise error
        return found

    def forget(self) -> None:
        """Ask the cluster next time, however fresh the answer is."""
        self._stale_at = self._ask_all_at = 0.0

    async def _ask(self) -> ServedResources:
        before = [self._answers[root].body for root in _ROOTS if root in self._answers]
        bodies = [await self._body(root) for root in _ROOTS]
        now = self._connection.clock.monotonic()
        is_known = self._is_aggregated or now < self._ask_all_at
        if self._cached is not None and not self._cached.failed and bodies == before and is_known:
            return self._cached
        self._ask_all_at = now + FRESH_SECONDS
        documents = [self._read(body) for body in bodies]
        gate = asyncio.Semaphore(_AT_ONCE)
        failed: list[GroupVersion] = []

        async def ask_for(version: GroupVersion) -> tuple[ResourceInfo, ...]:
            async with gate:
                try:
                    document = self._read(await self._body(version.path))
                    return read_resource_list(document, version)
                except (ApiError, ClusterError, *_NONSENSE):
                    # A value, not an exception: out of a group of tasks it would come as a group,
                    # which nobody who asks a cluster expects.
                    failed.append(version)
                    return ()

        try:
            kinds = {document.get("kind") for document in documents}
            self._is_aggregated = kinds == {"APIGroupDiscoveryList"}
            if self._is_aggregated:
                served = read_aggregated(documents)
            else:
                versions = [each for one in documents for each in read_group_versions(one)]
                async with asyncio.TaskGroup() as group:
                    asked = [
                        group.create_task(ask_for(version), name=f"discover {version}")
                        for version in versions
                    ]
                resources = tuple(resource for task in asked for resource in task.result())
                served = ServedResources(resources, tuple(failed))
        except _NONSENSE as error:
            what = "the answer is no discovery document"
            raise unreadable(self._connection.cluster, what, error) from error
        return replace(served, resources=tuple(filter(_is_plain, served.resources)))

    async def _body(self, path: str) -> bytes:
        """Return a document, the last one if the cluster says that it has not changed."""
        cached = self._answers.get(path)
        tag = "" if cached is None else cached.headers.get("etag", "")
        headers = (*_ACCEPT, ("If-None-Match", tag)) if tag else _ACCEPT
        request = ApiRequest("GET", path, headers=headers, most_bytes=_MOST_BYTES)
        answer = await self._connection.ask(request)
        if answer.status == 304 and cached is not None:
            answer = cached
        self._answers[path] = answer
        return answer.body

    def _read(self, body: bytes) -> Object:
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except UNREADABLE as error:
            cluster = self._connection.cluster
            raise unreadable(cluster, "the answer is no discovery document", error) from error


def _is_plain(resource: ResourceInfo) -> bool:
    """Whether a resource has the names that Kubernetes gives; clients print them as they are."""
    named = (
        *(resource.group, resource.version, resource.kind, resource.plural, resource.singular),
        *(*resource.verbs, *resource.short_names, *resource.categories),
        *(text for part in resource.subresources for text in (part.name, part.kind, *part.verbs)),
    )
    return bool(resource.plural) and all(_PLAIN.fullmatch(text) for text in named)


def read_aggregated(documents: Iterable[Object]) -> ServedResources:
    """Read APIGroupDiscoveryList documents; stale versions count as failed."""
    resources: list[ResourceInfo] = []
    failed: list[GroupVersion] = []
    for document in documents:
        for group in _objects(document, "items"):
            name = str(group.get("metadata", {}).get("name") or "")
            for version in _objects(group, "versions"):
                served = GroupVersion(name, str(version.get("version")))
                if version.get("freshness") == "Stale":
                    failed.append(served)
                resources.extend(
                    ResourceInfo(
                        group=served.group,
                        version=served.version,
                        kind=_kind_of(each, served).kind,
                        plural=str(each.get("resource")),
                        singular=str(each.get("singularResource") or ""),
                        namespaced=each.get("scope") == "Namespaced",
                        verbs=_texts(each, "verbs"),
                        short_names=_texts(each, "shortNames"),
                        categories=_texts(each, "categories"),
                        subresources=tuple(
                            _read_subresource(described, served)
                            for described in _objects(each, "subresources")
                        ),
                    )
                    for each in _objects(version, "resources")
                )
    return ServedResources(tuple(resources), tuple(failed))


def read_group_versions(document: Object) -> tuple[GroupVersion, ...]:
    """Read an APIVersions or APIGroupList document."""
    core = [GroupVersion("", str(version)) for version in document.get("versions") or ()]
    named = [
        parse_api_version(str(version.get("groupVersion")))
        for group in _objects(document, "groups")
        for version in _objects(group, "versions")
    ]
    return (*core, *named)


def read_resource_list(document: Object, served: GroupVersion) -> tuple[ResourceInfo, ...]:
    """Read an APIResourceList, in which subresources stand beside their parents."""
    # One pass for each, whoever wrote the document: looking for the subresources of every resource
    # among all of them would take a member with a hundred thousand an hour of our time.
    listed = _objects(document, "resources")
    subresources: dict[str, list[Subresource]] = {}
    for each in listed:
        plural, slash, name = str(each.get("name")).partition("/")
        if slash:
            found = Subresource(
                name=name,
                kind=str(each.get("kind")),
                group=str(each.get("group") or served.group),
                version=str(each.get("version") or served.version),
                verbs=_texts(each, "verbs"),
            )
            subresources.setdefault(plural, []).append(found)
    return tuple(
        ResourceInfo(
            group=served.group,
            version=served.version,
            kind=str(each.get("kind")),
            plural=str(each.get("name")),
            singular=str(each.get("singularName") or ""),
            namespaced=bool(each.get("namespaced")),
            verbs=_texts(each, "verbs"),
            short_names=_texts(each, "shortNames"),
            categories=_texts(each, "categories"),
            subresources=tuple(subresources.get(str(each.get("name")), ())),
        )
        for each in listed
        if "/" not in str(each.get("name"))
    )


def _read_subresource(described: Object, served: GroupVersion) -> Subresource:
    kind = _kind_of(described, served)
    return Subresource(
        name=str(described.get("subresource")),
        kind=kind.kind,
        group=kind.group,
        version=kind.version,
        verbs=_texts(described, "verbs"),
    )


def _kind_of(described: Object, served: GroupVersion) -> GroupVersionKind:
    kind: Mapping[str, Any] = described.get("responseKind") or {}
    return GroupVersionKind(
        str(kind.get("group") or served.group),
        str(kind.get("version") or served.version),
        str(kind.get("kind") or ""),
    )


def _objects(holder: Object, key: str) -> list[Object]:
    return [each for each in holder.get(key) or () if isinstance(each, dict)]


def _texts(holder: Object, key: str) -> tuple[str, ...]:
    return tuple(str(each) for each in holder.get(key) or ())
