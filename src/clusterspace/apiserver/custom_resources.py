"""A CustomResourceDefinition as resources, one for each served version, and their rules."""

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from clusterspace.apiserver.catalog import METADATA_FIELDS, Reading, ScalePaths, Served
from clusterspace.apiserver.conversion import ConversionWebhook
from clusterspace.apiserver.forms import Form
from clusterspace.builtins.conversions import Conversion
from clusterspace.builtins.definitions import DefinedVersion, Definition
from clusterspace.builtins.normal_form import read_metadata
from clusterspace.builtins.printers.registry import find_fleet_printer, printer_of
from clusterspace.builtins.strategies import Creation
from clusterspace.builtins.validation.metadata import check_metadata, check_metadata_update
from clusterspace.client.webhooks import Webhooks
from clusterspace.errors import BadRequest, Cause, MalformedObject, MethodNotAllowed
from clusterspace.kube import causes
from clusterspace.kube.causes import NO_PATH, dotted_text, value_text
from clusterspace.kube.cel.rules import ABSENT, check_rules, has_rules
from clusterspace.kube.json_paths import JsonPath, read_json_path
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object, metadata_of, with_metadata
from clusterspace.kube.resources import (
    GroupResource,
    GroupVersion,
    GroupVersionKind,
    ResourceInfo,
    Subresource,
)
from clusterspace.kube.schemas.model import OBJECT_META, Schema, holds_objects, places
from clusterspace.kube.schemas.pruning import apply_defaults, prune
from clusterspace.kube.schemas.validation import still_new, validate

_TEXT: Final = {"type": "string"}
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""After one of these the rules are not asked: they are written for values of the right shape."""

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

_SUBRESOURCE_VERBS: Final = ("get", "patch", "update")

_UNASKED: Final = causes.invalid(
    NO_PATH,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


_ENDING: Final = "create not allowed while custom resource definition is terminating"


class CustomRules:
    """The rules of one served version of a custom resource."""

    def __init__(
        self,
        kind: GroupVersionKind,
        raw_schema: Object,
        *,
        has_status: bool,
        is_ending: bool = False,
    ) -> None:
        self._kind = kind
        self._is_ending = is_ending
        self._own = Schema(raw_schema)
        self._has_status = has_status
        meta = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": OBJECT_META.raw}
        properties = {**cast("Object", raw_schema.get("properties") or {}), **meta}
        self._whole = Schema({**raw_schema, "properties": properties})

    @property
    def schema(self) -> Schema:
        """What is known of the kind's fields, metadata included."""
        return self._whole

    @property
    def blank(self) -> Object:
        """Nothing: a custom object has no fields that nobody wrote."""
        return {}

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT makes an object that is not there."""
        return False

    @property
    def needs_version_to_update(self) -> bool:
        """Whether a PUT must say which version it replaces."""
        return True

    def read(self, kube_object: Object) -> Reading:
        """Drop what the schema does not know, and bring metadata into its normal form."""
        try:
            metadata = read_metadata(kube_object.get("metadata") or {})
        except MalformedObject as malformed:
            raise self._refused(malformed.message) from malformed
        pruned = prune({**kube_object, "metadata": metadata}, self._own, is_resource_root=True)
        kept = cast("Object", pruned.value)
        # Whole objects inside of this one are refused when their metadata cannot be read.
        for place in places(kept, self._own, holds_objects):
            if not place.schema.is_embedded_resource or not isinstance(place.value, dict):
                continue
            embedded = cast("Object", place.value).get("metadata")
            if embedded is None:
                continue
            try:
                read_metadata(embedded)
            except MalformedObject as malformed:
                where, shown = dotted_text((*place.steps, "metadata")), value_text(embedded)
                why = f"{where}: Invalid value: {shown}: {malformed.message}"
                raise self._refused(why) from malformed
        return Reading(kept, pruned.unknown)

    def default(self, kube_object: Object) -> Object:
        """Fill in what was left out."""
        return cast("Object", apply_defaults(kube_object, self._own))

    def prepare_create(self, kube_object: Object, creation: Creation) -> Object:
        """Start at the first generation, without a status that only its subresource may write."""
        del creation  # nothing of a custom object depends on who asks
        if self._is_ending:
            raise MethodNotAllowed(_ENDING)
        new = with_metadata(kube_object, generation=1)
        return _without_status(new) if self._has_status else new

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep the status, or everything but the status; count what else has changed."""
        if subresource == "status":
            # Everything of the old object but the status and the new record of field owners.
            owners = metadata_of(new).get("managedFields")
            return _with_status_of(with_metadata(old, managedFields=owners), new)
        kept = _with_status_of(new, old) if self._has_status else new
        generation = int(metadata_of(old).get("generation") or 0)
        is_changed = self._desired(kept) != self._desired(old)
        return with_metadata(kept, generation=generation + 1 if is_changed else generation or None)

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Return how an object that is being deleted looks: as most kinds do."""
        del old
        return marked

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new object."""
        metadata = check_metadata(kube_object, dns1123_subdomain_problems)
        found = [
            # Custom objects may have finalizers without a domain, which Kubernetes has let pass.
            *(each for each in metadata if not each.field.startswith("metadata.finalizers[")),
            *validate(kube_object, self._own),
        ]
        return (*found, *self._rule_causes(found, kube_object))

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change; what was wrong before and stays is let be."""
        wrong = validate(new, self._own)
        found = [*check_metadata_update(new, old), *still_new(wrong, new, old, self._own)]
        return (*found, *self._rule_causes(found, new, old))

    def _rule_causes(
        self, found: list[Cause], new: Object, old: object = ABSENT
    ) -> tuple[Cause, ...]:
        if not has_rules(self._own):
            return ()
        if any(cause.reason in _BLOCKING for cause in found):
            return (_UNASKED,)
        return check_rules(new, self._own, old=old)

    def _desired(self, kube_object: Object) -> Object:
        ignored = ("metadata", "status") if self._has_status else ("metadata",)
        return {key: value for key, value in kube_object.items() if key not in ignored}

    def _refused(self, why: str) -> BadRequest:
        kind = self._kind.kind
        text = f'{kind} in version "{self._kind.version}" cannot be handled as a {kind}: {why}'
        return BadRequest(text)


def _without_status(kube_object: Object) -> Object:
    return {key: value for key, value in kube_object.items() if key != "status"}


def _with_status_of(kube_object: Object, other: Object) -> Object:
    bare = _without_status(kube_object)
    return {**bare, "status": other["status"]} if "status" in other else bare


def served_resources(definition: Definition, webhooks: Webhooks) -> tuple[Served, ...]:
    """Return the resources of a definition; none until its names are accepted."""
    if not definition.is_established:
        return ()
    if definition.webhook is None:
        served = (each for each in definition.versions if each.is_served)
        return tuple(resource_of(definition, version) for version in served)
    webhook = ConversionWebhook(definition, webhooks)
    for version in definition.versions:
        webhook.replace(resource_of(definition, version, webhook))
    return tuple(
        webhook.versions[f"{definition.group}/{version.name}"]
        for version in definition.versions
        if version.is_served
    )


def resource_of(
    definition: Definition, version: DefinedVersion, webhook: ConversionWebhook | None = None
) -> Served:
    """Return one version of a custom resource with its rules, form and printer."""
    group = definition.group
    # A definition that was never served has no accepted names, and still its objects must go.
    names = definition.accepted if definition.accepted.kind else definition.names
    status = Subresource("status", names.kind, group, version.name, _SUBRESOURCE_VERBS)
    scale = Subresource("scale", "Scale", "autoscaling", "v1", _SUBRESOURCE_VERBS)
    subresources = ((status, version.has_status), (scale, version.scale is not None))
    info = ResourceInfo(
        group=group,
        version=version.name,
        kind=names.kind,
        plural=definition.names.plural,
        singular=names.singular,
        namespaced=definition.is_namespaced,
        verbs=VERBS,
        short_names=names.short_names,
        categories=names.categories,
        subresources=tuple(each for each, is_defined in subresources if is_defined),
        list_kind=names.list_kind,
    )
    selectable = {text.removeprefix("."): read_json_path(text) for text in version.selectable}
    fields = {name: partial(_field_text, path) for name, path in selectable.items()}

    def refuse_field(name: str) -> str:
        is_known = name in fields or name in METADATA_FIELDS
        return "" if is_known else f"field label not supported: {name}"

    scale_paths = None
    if version.scale is not None:
        selector = str(version.scale.get("labelSelectorPath") or "")
        scale_paths = ScalePaths(
            spec_replicas=read_json_path(str(version.scale["specReplicasPath"])).fields,
            status_replicas=read_json_path(str(version.scale["statusReplicasPath"])).fields,
            selector=read_json_path(selector).fields if selector else (),
        )
    stored_as = f"{group}/{definition.storage_version}/{info.kind}"
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
            api_version=info.api_version,
            # With a webhook, what is read has been converted to this very version before.
            stored_version=GroupVersion(
                group, version.name if webhook else definition.storage_version
            ).api_version,
            bare_items=False,
            conversion=None if webhook else _conversion(definition, version),
            renew=_renewal(version),
            renewed_upto=definition.revision,
        ),
        printer=find_fleet_printer(info.group, info.kind) or printer_of(version.columns),
        storage=GroupResource(group, info.plural),
        is_custom=True,
        webhook=webhook,
        deprecation=definition.warning_about(version),
        fields=fields,
        refuse_field=refuse_field,
        scale=scale_paths,
        storage_version_hash=base64.b64encode(
            hashlib.sha256(stored_as.encode()).digest()[:8]
        ).decode(),
    )


def _field_text(path: JsonPath, kube_object: Object) -> str:
    value = path.find(kube_object)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _renewal(version: DefinedVersion) -> Callable[[Object], Object]:
    """Return how an object that was stored before the definition changed is read now.

    With today's defaults, and without fields that are no longer defined; it is stored like that
    when somebody writes it next.
    """
    schema = Schema(version.raw_schema)

    def renew(stored: Object) -> Object:
        known = prune(stored, schema, is_resource_root=True).value
        return cast("Object", apply_defaults(known, schema))

    return renew


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
