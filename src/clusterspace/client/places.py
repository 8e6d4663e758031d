"""Where an object or a collection is: Place, and its path."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clusterspace.client.requests import path_of
from clusterspace.kube.objects import name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A collection, an object in it, or a part of that object.

    Place(PODS)                                   pods of all namespaces
    Place(PODS, "default")                        pods of one namespace
    Place(PODS, "default", "web")                 one pod
    Place(PODS, "default", "web").part("log")     a subresource of it
    """

    resource: GroupVersionResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of the URL, encoded."""
        inside = ("namespaces", self.namespace) if self.namespace else ()
        parts = tuple(part for part in (self.name, self.subresource) if part)
        return self.resource.group_version.path + path_of(*inside, self.resource.resource, *parts)

    @property
    def collection(self) -> "Place":
        """The collection the object is in."""
        return replace(self, name="", subresource="")

    @property
    def key(self) -> str:
        """The object's name, with its namespace before it if it has one."""
        return key_of(self.namespace, self.name)

    def named(self, name: str) -> "Place":
        """Return an object of this collection."""
        return replace(self, name=name)

    def part(self, subresource: str) -> "Place":
        """Return a subresource of this object."""
        return replace(self, subresource=subresource)

    def at(self, key: str) -> "Place":
        """Return the object with this key."""
        namespace, _, name = key.rpartition("/")
        return replace(self, namespace=namespace, name=name)

    def __str__(self) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        subject = f" {self.key}" if self.name or self.namespace else ""
        return f"{self.resource.group_resource}{part}{subject}"


def place_of(resource: GroupVersionResource, kube_object: Mapping[str, Any]) -> Place:
    """Return where an object is."""
    return Place(resource, namespace_of(kube_object), name_of(kube_object))


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or the name alone for what has no namespace."""
    return f"{namespace}/{name}" if namespace else name
