"""The built-in resources, ready to be served."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from clusterspace.apiserver.builtin_rules import BuiltinRules, NamespaceRules
from clusterspace.apiserver.catalog import FieldReader, ScalePaths, Served
from clusterspace.apiserver.definition_rules import DefinitionRules
from clusterspace.apiserver.forms import Form
from clusterspace.builtins.conversions import Conversion, conversion_between
from clusterspace.builtins.printers.cells import Cell, PrintedColumn, Printer
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.builtins.resource_model import NAME, NAMESPACE, BuiltinResource, SelectableField
from clusterspace.builtins.resources import all_resources
from clusterspace.kube.resources import GroupResource, GroupVersion, GroupVersionKind

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


def builtin_resources() -> Iterable[Served]:
    """Return every built-in resource, in the order of discovery."""
    return (served_builtin(resource) for resource in all_resources())


def served_builtin(resource: BuiltinResource) -> Served:
    """Return one built-in resource with its rules, form and printer."""
    info, stored = resource.info, resource.storage
    conversion = _conversion(resource)
    rules = _RULES.get((info.group, info.kind), BuiltinRules)
    stored_version = GroupVersion(stored.group, stored.version).api_version
    selector = _SCALED.get((info.group, info.plural))
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
        storage=GroupResource(stored.group, stored.resource),
        fields=_field_readers(resource),
        refuse_field=resource.field_problem,
        scale=ScalePaths(("spec", "replicas"), ("status", "replicas"), selector)
        if selector
        else None,
        storage_version_hash=resource.storage_version_hash,
        returns_deleted=(info.group, info.plural) in _RETURNS_DELETED,
    )


def _conversion(resource: BuiltinResource) -> Conversion | None:
    if not resource.needs_conversion:
        return None
    stored = resource.storage
    stored_version = GroupVersion(stored.group, stored.version).api_version
    return conversion_between(resource.info.group_version_kind, stored_version)


def _printer(resource: BuiltinResource, conversion: Conversion | None) -> Printer:
    """Return the kind's printer; printers read the stored shape, whichever is served."""
    own = printer_for(resource.info.group, resource.info.kind)
    if conversion is None:
        return own
    to_stored = conversion.to_stored

    def reading_stored(cell: Cell) -> Cell:
        return lambda kube_object, now: cell(to_stored(kube_object), now)

    printed = (PrintedColumn(held.column, reading_stored(held.cell)) for held in own.printed)
    return Printer(tuple(printed), own.conditions)


def _field_readers(resource: BuiltinResource) -> dict[str, FieldReader]:
    known = resource.selectable_fields
    own = {name: field for name, field in known.items() if field not in (NAME, NAMESPACE)}
    return {name: partial(_text_of, field) for name, field in own.items()}


def _text_of(field: SelectableField, kube_object: dict[str, object]) -> str:
    return field.text_of(kube_object)
