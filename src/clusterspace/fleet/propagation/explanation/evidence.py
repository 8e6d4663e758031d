"""What explains where one object is: the object and all that was made of it, read from the hub."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.bindings import name_for, resource_for
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES, PROPAGATION_POLICIES
from clusterspace.client.discovery import ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions, Reader
from clusterspace.errors import NotServed
from clusterspace.kube.objects import Object, labels_of, namespace_of
from clusterspace.kube.resources import ResourceInfo

_BINDING_IDS: Final = (stamps.BINDING_ID, stamps.CLUSTER_BINDING_ID)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything on the hub that has to do with one template."""

    template: Object
    policies: tuple[Object, ...] = ()
    binding: Object | None = None
    works: tuple[Object, ...] = ()
    clusters: tuple[Object, ...] = ()


def find_named(served: ServedResources, word: str) -> ResourceInfo:
    """Return the resource people mean by a word: `deploy`, `Deployment`, `deployments.apps`."""
    name, _, group = word.lower().partition(".")
    found = (
        each
        for each in served.resources
        if name in _names_of(each) and (not group or each.group == group)
    )
    resource = next(found, None)
    if resource is None:
        raise NotServed(f"the hub serves nothing called {word}")
    return resource


async def gather(hub_client: Reader, place: ResourcePath) -> Evidence:
    """Read what there is about a template; NotFound when there is no such object."""
    template = await hub_client.get(place)
    namespace = namespace_of(template)
    binding = await hub_client.find(
        ResourcePath(resource_for(namespace), namespace, name_for(template))
    )
    policies = await hub_client.list_objects(ResourcePath(CLUSTER_PROPAGATION_POLICIES))
    if namespace:
        policies += await hub_client.list_objects(ResourcePath(PROPAGATION_POLICIES, namespace))
    return Evidence(
        template=template,
        policies=tuple(policies),
        binding=binding,
        works=tuple(await _works_of(hub_client, binding)),
        clusters=tuple(await hub_client.list_objects(ResourcePath(CLUSTERS))),
    )


async def _works_of(hub_client: Reader, binding: Object | None) -> Iterable[Object]:
    labels = labels_of(binding or {})
    selectors = [f"{label}={labels[label]}" for label in _BINDING_IDS if label in labels]
    if not selectors:
        return ()
    return await hub_client.list_objects(
        ResourcePath(WORKS), ListOptions(label_selector=selectors[0])
    )


def _names_of(resource: ResourceInfo) -> set[str]:
    return {resource.plural, resource.singular, resource.kind.lower(), *resource.short_names}
