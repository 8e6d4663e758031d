"""The rules of built-in kinds, from the facts in `builtins`."""

from collections.abc import Callable
from functools import cache
from typing import Final, cast

from clusterspace.apiserver.rules import Reading
from clusterspace.builtins import normal_form
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.schemas import schema_for
from clusterspace.builtins.strategies.admission import admit_new
from clusterspace.builtins.strategies.creation import Creation
from clusterspace.builtins.strategies.prepare import (
    prepare_for_create,
    prepare_for_status_update,
    prepare_for_update,
)
from clusterspace.builtins.strategies.table import strategy_for
from clusterspace.builtins.validation.validate import validate_create, validate_update
from clusterspace.errors import Cause
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schemas.model import ANYTHING, Schema


def _with_ephemeral_containers(new: Object, old: Object) -> Object:
    wanted = find_at(new, "spec", "ephemeralContainers")
    if wanted is None:
        return old
    return _next_generation(with_value(old, wanted, "spec", "ephemeralContainers"), old)


def _with_resources(new: Object, old: Object) -> Object:
    """Return a pod with other resources for its containers, and nothing else changed."""
    containers = cast("list[Object]", find_at(new, "spec", "containers") or [])
    wanted = {each.get("name"): each.get("resources") for each in containers}
    held = cast("list[Object]", find_at(old, "spec", "containers") or [])
    resized: list[Object] = [{**each, "resources": wanted.get(each["name"])} for each in held]
    return _next_generation(with_value(old, resized, "spec", "containers"), old)


def _next_generation(new: Object, old: Object) -> Object:
    if new.get("spec") == old.get("spec"):
        return new
    return with_metadata(new, generation=(metadata_of(old).get("generation") or 0) + 1)


_PARTS: Final[dict[str, Callable[[Object, Object], Object]]] = {
    "status": prepare_for_status_update,
    "ephemeralcontainers": _with_ephemeral_containers,
    "resize": _with_resources,
}
"""What a write of a subresource leaves of the object; the rest edit only what they may."""


@cache
def _schema_of(kind: GroupVersionKind) -> Schema:
    return schema_for(kind.group, kind.version, kind.kind) or ANYTHING


@cache
def _blank_of(kind: GroupVersionKind) -> Object:
    return normal_form.normalize({}, kind).object


class BuiltinRules:
    """The rules of one built-in kind."""

    def __init__(self, kind: GroupVersionKind) -> None:
        self._kind = kind
        self._strategy = strategy_for(kind.group_kind)

    @property
    def schema(self) -> Schema:
        """What is known of the kind's fields."""
        return _schema_of(self._kind)

    @property
    def blank(self) -> Object:
        """What an object of the kind looks like before anybody has written to it."""
        return _blank_of(self._kind)

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT makes an object that is not there."""
        return self._strategy.creates_on_update

    @property
    def needs_version_to_update(self) -> bool:
        """Whether a PUT must say which version it replaces."""
        return not self._strategy.updates_unconditionally

    def read(self, kube_object: Object) -> Reading:
        """Bring a decoded body into the kind's normal form."""
        normal = normal_form.normalize(kube_object, self._kind)
        return Reading(normal.object, normal.unknown_fields)

    def default(self, kube_object: Object) -> Object:
        """Fill in what was left out."""
        return apply_defaults(self._kind, kube_object)

    def prepare_create(self, kube_object: Object, creation: Creation) -> Object:
        """Set what only the server may set on a new object."""
        admitted = admit_new(self._kind.group_kind, kube_object)
        return prepare_for_create(self._kind, admitted, creation)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep what this write may not touch."""
        if subresource in ("", "scale"):
            return prepare_for_update(self._kind, new, old)
        part = _PARTS.get(subresource)
        return part(new, old) if part else new

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Return how an object that is being deleted looks."""
        return marked

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new object."""
        return validate_create(self._kind, kube_object)

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change.

        Most subresources change just what the object itself may not: where a pod runs, say.
        """
        if subresource not in ("", "scale", "status"):
            return ()
        return validate_update(self._kind, new, old)


class NamespaceRules(BuiltinRules):
    """A namespace ends in steps of its own: phase first, content next, itself last."""

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Mark the phase; a namespace has no grace period."""
        unhurried = with_metadata(marked, deletionGracePeriodSeconds=None)
        return with_value(unhurried, "Terminating", "status", "phase")
