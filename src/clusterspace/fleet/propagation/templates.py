"""Which objects are templates, and when they changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.confinement import why_at_home
from clusterspace.client.discovery import ServedResources
from clusterspace.client.places import Place
from clusterspace.controllers.reconcile import Request
from clusterspace.kube.objects import (
    Object,
    labels_of,
    metadata_of,
    name_of,
)
from clusterspace.kube.resources import GroupResource, GroupVersionResource, ResourceInfo

_OWN_GROUPS: Final = frozenset(
    f"{group}.karmada.io"
    for group in (
        "apps", "autoscaling", "cluster", "config", "networking", "policy", "remedy", "search",
        "work",
    )
) | {"cluster.kubernetes-fleet.io", "placement.kubernetes-fleet.io"}  # fmt: skip
"""Groups of the control plane itself."""

_SKIPPED: Final = frozenset(
    {
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
        GroupResource("coordination.k8s.io", "leases"),
    }
)
"""What every cluster writes for itself, all day long."""

_NEEDED_VERBS: Final = frozenset({"list", "watch", "delete"})

_MADE_BY_EVERY_CLUSTER: Final = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "extension-apiserver-authentication"),
        ("ServiceAccount", "default"),
    }
)
"""Objects each API server makes for itself; sending ours would only fight with theirs."""

_SERVERS: Final = frozenset({"managedFields", "resourceVersion", "generation"})
_OURS: Final = ".karmada.io"
_WISHES: Final = frozenset(
    {stamps.CONFLICT_RESOLUTION, stamps.RETAIN_REPLICAS, stamps.TEMPLATE_CLAIMED_BY}
)
"""Words with our prefix that users write."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class TemplateRequest(Request):
    """Bring one template of one kind to where it should be."""

    resource: GroupVersionResource

    @property
    def place(self) -> Place:
        """Where the template is."""
        return Place(self.resource, self.namespace, self.name)

    def __str__(self) -> str:
        return str(self.place)


def template_request(resource: GroupVersionResource, key: str) -> TemplateRequest:
    """Return the request for the template with this key."""
    namespace, _, name = key.rpartition("/")
    return TemplateRequest(name=name, namespace=namespace, resource=resource)


def template_resources(served: ServedResources) -> tuple[ResourceInfo, ...]:
    """Return the resources whose objects may be templates, each at its preferred version."""
    chosen: dict[GroupResource, ResourceInfo] = {}
    for resource in served.resources:
        if _may_hold_templates(resource):
            chosen.setdefault(resource.group_resource, resource)
    return tuple(chosen.values())


def is_template(kube_object: Object) -> bool:
    """Whether policies may claim an object at all."""
    named = str(kube_object.get("kind")), name_of(kube_object)
    if why_at_home(kube_object) or named in _MADE_BY_EVERY_CLUSTER:
        return False
    return stamps.TEMPLATE_CLAIMED_BY not in labels_of(kube_object)


def users_part(template: Object) -> Object:
    """Return what users wrote in a template: no status, and nothing that the control plane adds."""
    metadata = {key: each for key, each in metadata_of(template).items() if key not in _SERVERS}
    rest = {key: each for key, each in template.items() if key not in ("status", "metadata")}
    theirs = {key: _users_words(metadata.get(key) or {}) for key in ("labels", "annotations")}
    return {**rest, "metadata": {**metadata, **theirs}}


def _users_words(words: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in words.items() if _OURS not in key or key in _WISHES}


def _may_hold_templates(resource: ResourceInfo) -> bool:
    is_own = resource.group in _OWN_GROUPS or resource.group_resource in _SKIPPED
    return not is_own and frozenset(resource.verbs) >= _NEEDED_VERBS


def keys_in(keys: Iterable[str], *, namespace: str = "", name: str = "") -> list[str]:
    """Return the keys of one namespace, of one name, or both."""
    return [
        key
        for key in keys
        if (not namespace or key.startswith(f"{namespace}/"))
        and (not name or key == name or key.endswith(f"/{name}"))
    ]
