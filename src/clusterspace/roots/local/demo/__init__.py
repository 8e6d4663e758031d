"""Puts the sample shop on a local fleet; once more changes nothing.

shop.yaml    the shop on the hub: two Deployments, a Service, a policy and an override
legacy.yaml  what runs on the first member already, and waits to be promoted
"""

from importlib.resources import files
from typing import Final

import yaml

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import AlreadyExists
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.roots.clients import hub_settings, member_settings, open_client
from clusterspace.roots.local.files import LocalFiles

FIRST_MEMBER: Final = "member1"
_PATIENCE_SECONDS: Final = 15.0


async def place_shop(local: LocalFiles, clock: Clock) -> None:
    """Put the shop on the hub, and what waits to be promoted on the first member.

    The members are waited for: replicas are divided among those that are ready, and then stay.
    """
    hub = hub_settings(local.hub_kubeconfig)
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    async with open_client(hub) as client:
        while clock.monotonic() < deadline:
            clusters = await client.list_objects(ResourcePath(CLUSTERS))
            if all(is_true(conditions_of(each), "Ready") for each in clusters):
                break
            await clock.sleep(0.1)
    await _create_all(hub, manifests("shop.yaml"))
    member = member_settings(FIRST_MEMBER, local.member_kubeconfig(FIRST_MEMBER))
    await _create_all(member, manifests("legacy.yaml"))


def manifests(name: str) -> list[Object]:
    """Return the objects of a file of this package."""
    text = files("clusterspace.roots.local.demo").joinpath(name).read_text()
    return [each for each in yaml.safe_load_all(text) if each]


async def _create_all(settings: ConnectionSettings, objects: list[Object]) -> None:
    async with open_client(settings) as target:
        discovery = Discovery(target.connection)
        for each in objects:
            kind = GroupVersionKind.of(each["apiVersion"], each["kind"])
            served = await discovery.get_resource(kind)
            place = resource_path_of(served.group_version_resource, each)
            try:
                await target.create(place.collection, each)
            except AlreadyExists:
                continue  # from an earlier start; people may have changed it since
