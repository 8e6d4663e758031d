"""A CustomResourceDefinition as resources, ready to be served: one for each served version."""

import base64
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from clusterspace.apiserver.catalog import FieldReader, ScalePaths, Served
from clusterspace.apiserver.custom_rules import CustomRules
from clusterspace.apiserver.forms import Form
from clusterspace.builtins.conversions import Conversion
from clusterspace.builtins.definitions.columns import printer_of
from clusterspace.builtins.definitions.reading import DefinedVersion, Definition
from clusterspace.builtins.printers.registry import find_fleet_printer
from clusterspace.kube.json_paths import JsonPath, read_json_path
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import (
    GroupResource,
    GroupVersion,
    GroupVersionKind,
    ResourceInfo,
    Subresource,
)
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.pruning import apply_defaults, prune

VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
"""In the order a kube-apiserver lists them for custom resources."""

_PART_VERBS: Final = ("get", "patch", "update")


def served_resources(definition: Definition) -> tuple[Served, ...]:
    """Return what a definition adds to the catalog: nothing until its names are accepted."""
    if not definition.is_established:
        return ()
    served = (each for each in definition.versions if each.is_served)
    return tuple(resource_of(definition, version) for version in served)


def resource_of(definition: Definition, version: DefinedVersion) -> Served:
    """Return one version of a custom resource with its rules, form and printer."""
    group_version = GroupVersion(definition.group, version.name)
    stored_version = GroupVersion(definition.group, definition.storage_version)
    info = _info(definition, version)
    fields = _field_readers(version)
    return Served(
        info=info,
        rules=CustomRules(
            info.group_version_kind,
            version.raw_schema,
            has_status=version.has_status,
            is_ending=definition.is_ending,
        ),
        form=Form.of(
            kind=info.kind,
            api_version=group_version.api_version,
            stored_version=stored_version.api_version,
            bare_items=False,
            conversion=_conversion(definition, version),
        ),
        printer=find_fleet_printer(info.group, info.kind) or printer_of(version.columns),
        storage=GroupResource(definition.group, info.plural),
        is_custom=True,
        fields=fields,
        refuse_field=partial(_refuse_field, fields),
        scale=_scale_paths(version.scale),
        storage_version_hash=_storage_hash(definition, info.kind),
    )


def _info(definition: Definition, version: DefinedVersion) -> ResourceInfo:
    # A definition that was never served has no accepted names, and still its objects must go.
    names = definition.accepted if definition.accepted.kind else definition.names
    return ResourceInfo(
        group=definition.group,
        version=version.name,
        kind=names.kind,
        plural=definition.names.plural,
        singular=names.singular,
        namespaced=definition.is_namespaced,
        verbs=VERBS,
        short_names=names.short_names,
        categories=names.categories,
        subresources=_subresources(definition, version, names.kind),
        list_kind=names.list_kind,
    )


def _subresources(
    definition: Definition, version: DefinedVersion, kind: str
) -> tuple[Subresource, ...]:
    status = Subresource("status", kind, definition.group, version.name, _PART_VERBS)
    scale = Subresource("scale", "Scale", "autoscaling", "v1", _PART_VERBS)
    chosen = ((status, version.has_status), (scale, version.scale is not None))
    return tuple(each for each, is_there in chosen if is_there)


def _scale_paths(scale: Object | None) -> ScalePaths | None:
    if scale is None:
        return None
    selector = str(scale.get("labelSelectorPath") or "")
    return ScalePaths(
        spec_replicas=read_json_path(str(scale["specReplicasPath"])).fields,
        status_replicas=read_json_path(str(scale["statusReplicasPath"])).fields,
        selector=read_json_path(selector).fields if selector else (),
    )


def _field_readers(version: DefinedVersion) -> dict[str, FieldReader]:
    paths = {text.removeprefix("."): read_json_path(text) for text in version.selectable}
    return {name: partial(_field_text, path) for name, path in paths.items()}


def _field_text(path: JsonPath, kube_object: Object) -> str:
    value = path.find(kube_object)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _refuse_field(fields: Mapping[str, Any], name: str) -> str:
    known = (*fields, "metadata.name", "metadata.namespace")
    return "" if name in known else f"field label not supported: {name}"


def _storage_hash(definition: Definition, kind: str) -> str:
    stored = f"{definition.group}/{definition.storage_version}/{kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def _conversion(definition: Definition, version: DefinedVersion) -> Conversion | None:
    """Return how to read stored objects as another version: without what that does not know.

    Versions with the same schema need none; their objects differ in nothing but the apiVersion.
    """
    schemas = {each.name: each.raw_schema for each in definition.versions}
    if version.raw_schema == schemas[definition.storage_version]:
        return None
    schema = Schema(version.raw_schema)
    api_version = GroupVersionKind(definition.group, version.name, "").api_version
    head = {"kind": definition.names.kind, "apiVersion": api_version}

    def from_stored(stored: Object) -> Object:
        known = prune({**head, **stored}, schema, is_resource_root=True).value
        return cast("Object", apply_defaults(known, schema))

    return Conversion(to_stored=lambda kube_object: kube_object, from_stored=from_stored)
