"""The built-in resources with their rules, from the facts in `builtins`."""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Final, cast

from clusterspace.apiserver.catalog import Reading, ScalePaths, Served
from clusterspace.apiserver.forms import Form
from clusterspace.builtins import normal_form
from clusterspace.builtins.conversions import Conversion, conversion_between
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.definitions import mark_definition_deleted
from clusterspace.builtins.printers.cells import Cell, PrintedColumn, Printer
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.builtins.resource_model import NAME, NAMESPACE, BuiltinResource
from clusterspace.builtins.resources import all_resources, optional_resources
from clusterspace.builtins.schemas import schema_for
from clusterspace.builtins.strategies import (
    Creation,
    prepare_for_create,
    prepare_for_status_update,
    prepare_for_update,
    strategy_for,
)
from clusterspace.builtins.validation.definitions import (
    validate_definition,
    validate_definition_update,
)
from clusterspace.builtins.validation.metadata import check_metadata, check_metadata_update
from clusterspace.builtins.validation.validate import validate_create, validate_update
from clusterspace.errors import Cause
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.kube.resources import GroupResource, GroupVersion, GroupVersionKind
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
    current = cast("list[Object]", find_at(old, "spec", "containers") or [])
    resized: list[Object] = [{**each, "resources": wanted.get(each["name"])} for each in current]
    return _next_generation(with_value(old, resized, "spec", "containers"), old)


def _next_generation(new: Object, old: Object) -> Object:
    if new.get("spec") == old.get("spec"):
        return new
    return with_metadata(new, generation=(metadata_of(old).get("generation") or 0) + 1)


_SUBRESOURCE_UPDATES: Final[dict[str, Callable[[Object, Object], Object]]] = {
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
        return prepare_for_create(self._kind, kube_object, creation)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep what this write may not touch."""
        if subresource in ("", "scale"):
            return prepare_for_update(self._kind, new, old)
        prepare = _SUBRESOURCE_UPDATES.get(subresource)
        return prepare(new, old) if prepare else new

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


class DefinitionRules(BuiltinRules):
    """A definition is refused when it could not be served, and goes after its objects."""

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new definition."""
        found = check_metadata(kube_object, dns1123_subdomain_problems)
        return (*found, *validate_definition(kube_object))

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change; a status is its controller's business."""
        found = tuple(check_metadata_update(new, old))
        return found if subresource else (*found, *validate_definition_update(new, old))

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Hold the definition until its objects are gone."""
        return mark_definition_deleted(marked, old)


_RETURNS_DELETED: Final = frozenset(
    {
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "resourceslices"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)
"""A delete of these answers with the object that is gone, as kube-apiserver does."""

_SCALED: Final = {
    ("apps", "deployments"): ("spec", "selector"),
    ("apps", "replicasets"): ("spec", "selector"),
    ("apps", "statefulsets"): ("spec", "selector"),
    ("", "replicationcontrollers"): ("spec", "selector"),
}

_RULES: Final[dict[tuple[str, str], Callable[[GroupVersionKind], BuiltinRules]]] = {
    ("", "Namespace"): NamespaceRules,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): DefinitionRules,
}


def builtin_resources(asked: Collection[str] = ()) -> Iterable[Served]:
    """Return every built-in resource, and those of the optional versions that are asked for."""
    return (served_builtin(each) for each in (*all_resources(), *optional_resources(asked)))


def served_builtin(resource: BuiltinResource) -> Served:
    """Return one built-in resource with its rules, form and printer."""
    info = resource.info
    stored_version = GroupVersion(resource.storage.group, resource.storage.version).api_version
    conversion = None
    if resource.needs_conversion:
        conversion = conversion_between(info.group_version_kind, stored_version)
    rules = _RULES.get((info.group, info.kind), BuiltinRules)
    selector = _SCALED.get((info.group, info.plural))
    fields = resource.selectable_fields.items()
    return Served(
        info=info,
        rules=rules(info.group_version_kind),
        form=Form.of(
            kind=info.kind,
            api_version=info.api_version,
            stored_version=stored_version,
            bare_items=True,
            conversion=conversion,
        ),
        printer=_printer(resource, conversion),
        storage=GroupResource(resource.storage.group, resource.storage.resource),
        fields={name: field.text_of for name, field in fields if field not in (NAME, NAMESPACE)},
        refuse_field=resource.field_problem,
        scale=ScalePaths(("spec", "replicas"), ("status", "replicas"), selector)
        if selector
        else None,
        storage_version_hash=resource.storage_version_hash,
        returns_deleted=(info.group, info.plural) in _RETURNS_DELETED,
    )


def _printer(resource: BuiltinResource, conversion: Conversion | None) -> Printer:
    """Return the kind's printer; printers read the stored shape, whichever is served."""
    printer = printer_for(resource.info.group, resource.info.kind)
    if conversion is None:
        return printer
    to_stored = conversion.to_stored

    def reading_stored(cell: Cell) -> Cell:
        return lambda kube_object, now: cell(to_stored(kube_object), now)

    printed = (PrintedColumn(each.column, reading_stored(each.cell)) for each in printer.printed)
    return Printer(tuple(printed), printer.conditions)
