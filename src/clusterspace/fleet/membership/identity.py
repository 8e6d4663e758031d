"""Who a cluster is: kube-system UID, ClusterProperty; the same cluster twice is refused.

A cluster may say who it is with a ClusterProperty (KEP-2149). One that says nothing is known by the
UID of its kube-system namespace, which lives as long as the cluster does.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import find_same_id, id_of
from clusterspace.apis.crds import definition
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Reader
from clusterspace.errors import (
    ApiError,
    CannotJoin,
    ClusterTimeout,
    NotFound,
    NotServed,
)
from clusterspace.fleet.membership import names
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource

PROPERTIES: Final = GroupVersionResource("about.k8s.io", "v1beta1", "clusterproperties")
_OLDER: Final = (GroupVersionResource("about.k8s.io", "v1alpha1", "clusterproperties"),)
_DEFINITIONS: Final = GroupVersionResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions"
)

ID_PROPERTY: Final = "id.k8s.io"
_ID_PROPERTIES: Final = (ID_PROPERTY, "cluster.clusterset.k8s.io")
"""Where a cluster may say who it is; the first that is there counts."""

_ESTABLISH_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1


class PropertyApi(Enum):
    """Whether a cluster can hold ClusterProperties."""

    MISSING = "missing"
    OLDER = "older"
    CURRENT = "current"


class Creation(Enum):
    """What to do about a cluster that does not say who it is: `--create-clusterproperty-...`."""

    UNSET = "unset"
    CREATE = "true"
    REFUSE = "false"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster's own statements about who it is."""

    kube_system_uid: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    api: PropertyApi = PropertyApi.MISSING

    @property
    def declared(self) -> str:
        """The ID the cluster declares, or an empty text."""
        return next((self.properties[key] for key in _ID_PROPERTIES if key in self.properties), "")

    @property
    def id(self) -> str:
        """The ID the cluster is known by."""
        return self.declared or self.kube_system_uid


def needs_property(cluster: str, identity: ClusterIdentity, creation: Creation) -> bool:
    """Whether the cluster must be given a ClusterProperty first; refuse when it cannot join."""
    if identity.declared or creation is Creation.UNSET:
        return False
    if creation is Creation.REFUSE:
        why = (
            f"it has no ClusterProperty {ID_PROPERTY}: create one, "
            "or join with --create-clusterproperty-not-exist=true"
        )
        raise CannotJoin(cluster, why)
    if identity.api is PropertyApi.OLDER:
        served = ", ".join(each.version for each in _OLDER)
        why = (
            f"its ClusterProperty API is of an older version ({served}): "
            f"upgrade it to {PROPERTIES.version}, then join again"
        )
        raise CannotJoin(cluster, why)
    return True


def refuse_if_taken(name: str, cluster_id: str, present: Iterable[Object]) -> Object | None:
    """Return the Cluster this one joined as before, if it did; refuse what would be a mix-up."""
    clusters = list(present)
    holder = find_same_id(clusters, cluster_id, name)
    if holder is not None:
        why = (
            f"the cluster with the ID {cluster_id} has joined as {holder}: unjoin {holder} first, "
            f"or if this is a clone of it, give it a ClusterProperty {ID_PROPERTY} of its own"
        )
        raise CannotJoin(name, why)
    known = next((each for each in clusters if name_of(each) == name), None)
    if known is not None and id_of(known) not in ("", cluster_id):
        why = f"the name belongs to another cluster, with the ID {id_of(known)}"
        raise CannotJoin(name, why)
    return known


def property_object(cluster_id: str) -> Object:
    """Return the ClusterProperty by which a cluster says who it is."""
    return {
        "apiVersion": PROPERTIES.api_version,
        "kind": "ClusterProperty",
        "metadata": {"name": ID_PROPERTY},
        "spec": {"value": cluster_id},
    }


def property_definition() -> Object:
    """Return the definition of ClusterProperty, for clusters that have none."""
    return definition(PROPERTIES.resource, PROPERTIES.group)


async def read_identity(member: Reader) -> ClusterIdentity:
    """Ask a cluster who it is."""
    kube_system = await member.get(names.namespace_place("kube-system"))
    for resource in (PROPERTIES, *_OLDER):
        try:
            properties = await member.list_objects(ResourcePath(resource))
        except (NotServed, NotFound):
            continue
        api = PropertyApi.CURRENT if resource == PROPERTIES else PropertyApi.OLDER
        return ClusterIdentity(uid_of(kube_system), properties_in(properties), api)
    return ClusterIdentity(uid_of(kube_system))


def properties_in(properties: Iterable[Object]) -> dict[str, str]:
    """Return names and values of ClusterProperties."""
    return {name_of(each): str(find_at(each, "spec", "value") or "") for each in properties}


async def wait_served(member: Reader, cluster: str, clock: Clock) -> None:
    """Wait until a member serves ClusterProperty, after its definition was installed."""
    try:
        async with asyncio.timeout(_ESTABLISH_SECONDS):
            while True:
                definition = await member.get(definition_place())
                if is_true(find_at(definition, "status", "conditions"), "Established"):
                    # Said to be served, and by the server that was asked for the definition; the
                    # next one may take a moment longer.
                    with suppress(ApiError):
                        await member.list_objects(ResourcePath(PROPERTIES))
                        return
                await clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        why = "does not serve ClusterProperty although it was installed"
        raise ClusterTimeout(cluster, why) from error


def definition_place() -> ResourcePath:
    """Return where the definition of ClusterProperty is."""
    return ResourcePath(_DEFINITIONS, name=name_of(property_definition()))
