"""The annotation in which `kubectl apply` kept its configuration before there were owners.

Only the manager `kubectl` is concerned: it may take over what it applied by itself in former
times, and keeps the annotation true as long as there is one.
"""

from typing import Any, Final, cast

import msgspec

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.comparison import compare
from clusterspace.kube.managed_fields.extraction import owned_fields
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import without_entries
from clusterspace.kube.objects import Object, annotations_of, with_value, without_value
from clusterspace.kube.schemas.model import Schema

KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"

_PLACE: Final = ("metadata", "annotations", ANNOTATION)

# The size Kubernetes allows all annotations of an object together.
_MOST_ANNOTATION_BYTES: Final = 256 * 1024


def fields_still_as_applied(live: Object, schema: Schema, api_version: str) -> FieldSet:
    """Return what the annotation set and the live object still has as it was set."""
    configuration = _configuration_in(live)
    if configuration is None or configuration.get("apiVersion") != api_version:
        return FieldSet()
    try:
        comparison = compare(configuration, without_entries(live), schema)
        applied = owned_fields(configuration, schema)
    except MalformedObject:
        return FieldSet()
    return applied - comparison.changed - comparison.removed


def with_annotation_renewed(kube_object: Object, configuration: Object) -> Object:
    """Return the object with its annotation, if it has one, holding this configuration."""
    annotations = _annotations(kube_object)
    if not annotations.get(ANNOTATION):
        return kube_object
    bare = without_value(configuration, *_PLACE)
    text = msgspec.json.encode(bare, order="sorted").decode() + "\n"
    renewed = {**annotations, ANNOTATION: text}
    if (
        sum(len(key) + len(value.encode()) for key, value in renewed.items())
        > _MOST_ANNOTATION_BYTES
    ):
        return without_value(kube_object, *_PLACE)
    return with_value(kube_object, text, *_PLACE)


def _configuration_in(live: Object) -> Object | None:
    try:
        configuration = msgspec.json.decode(_annotations(live).get(ANNOTATION, ""))
    except (msgspec.DecodeError, TypeError, UnicodeEncodeError, RecursionError):
        return None
    return cast("Object", configuration) if isinstance(configuration, dict) else None


def _annotations(kube_object: Object) -> dict[str, Any]:
    annotations = annotations_of(kube_object)
    return cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}
