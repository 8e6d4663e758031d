"""`diff` put together: one object asked of every cluster, and clusters that agree counted together.

Clusters are asked through the fleet API server, as whoever runs the command and with their rights.
A cluster that could not be asked is named with the reason: it is never counted as without it.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import msgspec

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.connection import Connection
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ApiError, ClusterError, MalformedPath, NotFound, NotServed
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.fleet.propagation.explanation import find_named
from clusterspace.kube import plain_text
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.json_paths import JsonPath, read_json_path
from clusterspace.kube.objects import Object, find_at, labels_of
from clusterspace.roots.clients import open_client

_AT_ONCE: Final = 32
_SECONDS: Final = 10.0
"""How long a cluster may take; longer than the fleet API server waits for one itself."""
_MOST_BYTES: Final = 4 * 1024 * 1024
_VERSION: Final = "app.kubernetes.io/version"
_NOTHING: Final = "<none>"
_LONGEST: Final = 300
_IMAGES: Final = tuple(
    read_json_path(f"{place}.containers[*].image")
    for place in (".spec.template.spec", ".spec", ".spec.jobTemplate.spec.template.spec")
)
_TAG: Final = re.compile(r"[^@]*?:(?P<tag>[^:/@]+)(?:@.*)?")


class Aspect(Enum):
    """What clusters are compared by."""

    IMAGE = "image"
    VERSION = "version"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Group:
    """Clusters whose objects are alike."""

    value: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RollUp:
    """One object across all clusters."""

    kind: str
    namespace: str
    name: str
    by: str
    groups: tuple[Group, ...]
    """Those that have it: the largest group first."""
    absent: tuple[str, ...]
    """Clusters that have said that they do not have it."""
    unreached: Mapping[str, str]
    """Clusters that did not say, and why."""
    template: str = ""
    """What the hub's own object has, if the hub has one."""

    @property
    def summary(self) -> str:
        """All of it in a sentence: 38 clusters v5, 2 v4 (west, north)."""
        if not self.groups:
            return "in none of the clusters that answered" if self.absent else "nobody answered"
        first, *others = self.groups
        said = [f"{_count(len(first.clusters))} {first.value}"]
        said += [f"{len(each.clusters)} {each.value} ({_names(each.clusters)})" for each in others]
        return ", ".join(said)


async def roll_up(
    kind: str, name: str, namespace: str, by: Aspect | JsonPath, fleet: ConnectionSettings
) -> RollUp:
    """Ask every cluster of the fleet for an object, and count those together that are alike."""
    async with open_client(fleet) as client:
        resource = find_named(await Discovery(client.connection).served(), kind)
        inside = namespace if resource.namespaced else ""
        path = ResourcePath(resource.group_version_resource, inside, name)
        listed = await client.connection.ask(
            ApiRequest("GET", f"/clusterspaces/{HUB}{ResourcePath(CLUSTERS).path}")
        )
        clusters = msgspec.json.decode(listed.body)["items"]
        names = sorted(str(each["metadata"]["name"]) for each in clusters)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(cluster: str) -> Object | str | None:
            async with gate:
                return await _ask(client.connection, cluster, path)

        async with asyncio.TaskGroup() as group:
            asked = {each: group.create_task(ask(each)) for each in (HUB, *names)}
    answers = {each: task.result() for each, task in asked.items()}
    of_hub = answers.pop(HUB)
    found = {each: answer for each, answer in answers.items() if isinstance(answer, dict)}
    return RollUp(
        resource.kind,
        inside,
        name,
        by.value if isinstance(by, Aspect) else by.text,
        groups_of({each: _line(value_of(answer, by)) for each, answer in found.items()}),
        tuple(each for each, answer in answers.items() if answer is None),
        {each: _line(answer) for each, answer in answers.items() if isinstance(answer, str)},
        _line(value_of(of_hub, by)) if isinstance(of_hub, dict) else "",
    )


async def _ask(connection: Connection, cluster: str, path: ResourcePath) -> Object | str | None:
    """Return a cluster's object, None when it says that there is none, or why it said nothing."""
    request = ApiRequest(
        "GET",
        f"/clusterspaces/{cluster}{path.path}",
        seconds=_SECONDS,
        most_bytes=_MOST_BYTES,
        is_repeated=False,
    )
    try:
        found = (await connection.ask(request)).body
        return msgspec.json.decode(found, type=dict[str, Any])
    except (NotFound, NotServed) as error:
        if error.details is not None and error.details.kind == CLUSTERS.resource:
            return "has left the fleet"
        return None
    except ApiError as error:
        return error.message
    except (ClusterError, *UNREADABLE) as error:
        return str(error)


def value_of(kube_object: Object, by: Aspect | JsonPath) -> str:
    """Return what an object is compared by, as people read it."""
    if isinstance(by, JsonPath):
        return ", ".join(map(_text, by.find_all(kube_object))) or _NOTHING
    images = [str(each) for path in _IMAGES for each in path.find_all(kube_object)]
    if by is Aspect.VERSION:
        template = find_at(kube_object, "spec", "template")
        for labelled in (template, kube_object):
            if isinstance(labelled, dict) and (
                said := labels_of(cast("Object", labelled)).get(_VERSION)
            ):
                return said
        images = [found["tag"] if (found := _TAG.fullmatch(each)) else each for each in images]
    if by is not Aspect.CONTENT and images:
        return ", ".join(dict.fromkeys(images))
    # What somebody wrote: not what the cluster says of it, nor how it is called and kept there.
    kept = {key: value for key, value in kube_object.items() if key not in ("metadata", "status")}
    written = msgspec.json.encode(kept, order="deterministic")
    return f"content {hashlib.blake2b(written, digest_size=4).hexdigest()}"


def groups_of(values: Mapping[str, str]) -> tuple[Group, ...]:
    """Return clusters that have the same value together, the most first.

    >>> [len(each.clusters) for each in groups_of({"a": "v4", "b": "v5", "c": "v5"})]
    [2, 1]
    """
    found: dict[str, list[str]] = {}
    for cluster, value in values.items():
        found.setdefault(value, []).append(cluster)
    groups = (Group(value, tuple(sorted(clusters))) for value, clusters in found.items())
    return tuple(sorted(groups, key=lambda each: (-len(each.clusters), each.value)))


def read_field(text: str) -> JsonPath:
    """Read a path, with or without its first dot and braces; MalformedPath when it is none."""
    bare = text.strip().removeprefix("{").removesuffix("}")
    path = read_json_path(bare if bare.startswith((".", "[")) else f".{bare}")
    if not path.steps:
        raise MalformedPath(f"{text!r} names no field", place=text)
    return path


def _line(said: str) -> str:
    """Return the words of a cluster as one line that a terminal may be shown."""
    return plain_text.line(said, _LONGEST)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _count(number: int) -> str:
    return f"{number} cluster" if number == 1 else f"{number} clusters"


def _names(clusters: Iterable[str]) -> str:
    named = list(clusters)
    more = len(named) - 10
    return ", ".join(named[:10]) + (f" and {more} more" if more > 0 else "")
