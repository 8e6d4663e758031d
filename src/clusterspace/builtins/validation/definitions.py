"""Everything a kube-apiserver refuses a CustomResourceDefinition for, in its words."""

import base64
import hashlib
import ssl
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from clusterspace.builtins.definitions import ESTABLISHED
from clusterspace.builtins.validation.extension import check_client_config
from clusterspace.errors import Cause, MalformedPath, MalformedSchema
from clusterspace.kube import causes
from clusterspace.kube.cel.rules import check_rule_definitions
from clusterspace.kube.conditions import is_true
from clusterspace.kube.json_paths import read_json_path
from clusterspace.kube.names import dns1035_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.structural import check_structural

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_NOT_SIMPLE: Final = "must be a simple json path starting with ."
_MOST_SELECTABLE: Final = 8


def check_versions(spec: Object, old_spec: Object | None) -> Iterator[Cause]:
    """Check the versions of a definition; schemas that were there before are not checked again."""
    versions = cast("list[Object]", spec.get("versions") or [])
    names = [version.get("name") for version in versions]
    for index, version in enumerate(versions):
        here = f"spec.versions[{index}]"
        name = str(version.get("name") or "")
        for problem in dns1035_label_problems(name):
            yield causes.invalid(f"{here}.name", name, problem)
        warning = version.get("deprecationWarning")
        if warning is not None and not version.get("deprecated"):
            detail = "can only be set for deprecated versions"
            yield causes.invalid(f"{here}.deprecationWarning", warning, detail)
        if find_at(version, "schema", "openAPIV3Schema") is None:
            yield causes.required(f"{here}.schema.openAPIV3Schema")
    if len(set(names)) != len(names):
        yield _refused_list(versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield _refused_list(versions, detail)
    existing = cast("list[Object]", (old_spec or {}).get("versions") or [])
    kept = [find_at(version, "schema", "openAPIV3Schema") for version in existing]
    for place, version in _distinct_fields(versions):
        raw_schema = find_at(version, "schema", "openAPIV3Schema")
        schema_place = "validation" if place == "spec" else "schema"
        if raw_schema is not None and raw_schema not in kept:
            yield from check_schema(raw_schema, f"{place}.{schema_place}.openAPIV3Schema")
        scale = find_at(version, "subresources", "scale")
        if scale is not None:
            yield from _check_scale(cast("Object", scale), f"{place}.subresources.scale")
        columns = cast("list[Object]", version.get("additionalPrinterColumns") or [])
        for index, column in enumerate(columns):
            yield from _check_column(column, f"{place}.additionalPrinterColumns[{index}]")
        yield from _check_selectable(version, f"{place}.selectableFields", raw_schema)


def _refused_list(versions: list[Object], detail: str) -> Cause:
    """Blame the list of versions, shown as Kubernetes holds it, without what all have in common."""
    shown = [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for version in versions
    ]
    text = msgspec.json.encode(shown).decode()
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {detail}", "spec.versions")


_OF_A_VERSION: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _distinct_fields(versions: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield what to check and where: what all versions share is said of the whole, and once."""
    shared = {
        field: versions[0].get(field)
        for field in _OF_A_VERSION
        if versions and all(version.get(field) == versions[0].get(field) for version in versions)
    }
    yield "spec", {field: value for field, value in shared.items() if value is not None}
    for index, version in enumerate(versions):
        own = {
            field: version[field]
            for field in _OF_A_VERSION
            if field in version and field not in shared
        }
        yield f"spec.versions[{index}]", own


_sound: OrderedDict[bytes, None] = OrderedDict()
"""Digests of the schemas that were found sound last. To check one takes many times as long as to
read it, and most come again: after a dry run, after a deletion, or for the next hub in a process.
"""
_SOUND_AT_MOST: Final = 256


def check_schema(raw_schema: Any, place: str) -> tuple[Cause, ...]:
    """Return the causes to refuse a schema for or, if the schema is sound, its rules."""
    digest = hashlib.sha256(msgspec.json.encode(raw_schema)).digest()
    if digest in _sound:
        _sound.move_to_end(digest)
        return ()
    try:
        found = check_structural(raw_schema, path=place)
    except MalformedSchema as malformed:
        return (causes.invalid(malformed.place or place, "", malformed.message),)
    found = found or check_rule_definitions(raw_schema, path=place)
    if not found:
        # Only what is sound is kept: the causes name the place, which may be another next time.
        _sound[digest] = None
        if len(_sound) > _SOUND_AT_MOST:
            _sound.popitem(last=False)
    return found


def _check_scale(scale: Object, place: str) -> Iterator[Cause]:
    for field, roots in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".spec", ".status")),
    ):
        path, where = str(scale.get(field) or ""), f"{place}.{field}"
        if not path:
            if field != "labelSelectorPath":
                yield causes.required(where)
        elif not _is_simple(path):
            yield causes.invalid(where, path, _NOT_SIMPLE)
        elif not path.startswith(tuple(f"{root}." for root in roots)):
            named = f"either {' or '.join(roots)}" if len(roots) > 1 else roots[0]
            yield causes.invalid(where, path, f"should be a json path under {named}")


def _is_simple(path: str) -> bool:
    return path.startswith(".")


def _check_column(column: Object, place: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield causes.required(f"{place}.name")
    given = column.get("type")
    if not given:
        listed = ",".join(_COLUMN_TYPES)
        yield causes.required(f"{place}.type", f"must be one of {listed}")
    elif given not in _COLUMN_TYPES:
        detail = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield causes.invalid(f"{place}.type", given, detail)
    shape = column.get("format")
    if shape and shape not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        yield causes.invalid(f"{place}.format", shape, detail)
    path = str(column.get("jsonPath") or "")
    if not path:
        yield causes.required(f"{place}.JSONPath")
    elif not _is_simple(path):
        yield causes.invalid(f"{place}.JSONPath", path, _NOT_SIMPLE)


def _check_selectable(version: Object, place: str, raw_schema: Any) -> Iterator[Cause]:
    fields = cast("list[Object]", version.get("selectableFields") or [])
    if len(fields) > _MOST_SELECTABLE:
        yield causes.too_many(place, len(fields), _MOST_SELECTABLE)
    for index, field in enumerate(fields):
        path, where = str(field.get("jsonPath") or ""), f"{place}[{index}].jsonPath"
        if not path:
            yield causes.required(where)
        elif not _is_selectable(path, raw_schema):
            detail = "is an invalid path: does not refer to a valid field"
            yield causes.invalid(where, path, detail)


def _is_selectable(path: str, raw_schema: Any) -> bool:
    """Tell whether the schema has a scalar at the path, outside of the metadata."""
    try:
        fields = read_json_path(path).fields
    except MalformedPath:
        return False
    schema: Schema | None = Schema(raw_schema or {})
    for name in fields:
        schema = schema.properties.get(name) if schema is not None else None
    is_scalar = schema is not None and schema.type in ("string", "boolean", "integer")
    return is_scalar and bool(fields) and fields[0] != "metadata"


_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_APPROVAL: Final = "api-approved.kubernetes.io"
_APPROVAL_LINK: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
_PROTECTED: Final = (".k8s.io", ".kubernetes.io")
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")


def validate_definition(crd_object: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse a new definition, beside those of any object's metadata."""
    name, spec = name_of(crd_object), _spec(crd_object)
    found: tuple[Cause, ...] = ()
    if name and name != f"{find_at(spec, 'names', 'plural') or ''}.{spec.get('group') or ''}":
        detail = 'must be spec.names.plural+"."+spec.group'
        found = (causes.invalid("metadata.name", name, detail),)
    return (*found, *_check_spec(crd_object), *_check_stored(crd_object))


def validate_definition_update(new: Object, old: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse a change of a definition."""
    return (*_check_spec(new, old), *_check_stored(new), *_check_kept(new, old))


def _check_spec(crd_object: Object, old: Object | None = None) -> Iterator[Cause]:
    spec = _spec(crd_object)
    group = str(spec.get("group") or "")
    if not group:
        yield causes.required("spec.group")
    else:
        problems = dns1123_subdomain_problems(group)
        for problem in problems:
            yield causes.invalid("spec.group", group, problem)
        if not problems and "." not in group:
            yield causes.invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope")
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in _SCOPES:
        yield causes.not_supported("spec.scope", scope, _SCOPES)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true "
            "in spec.versions[*].schema instead"
        )
        yield causes.invalid("spec.preserveUnknownFields", True, detail)
    yield from check_versions(spec, None if old is None else _spec(old))
    yield from _check_names(cast("Object", spec.get("names") or {}))
    conversion = cast("Object", spec.get("conversion") or {})
    strategy = conversion.get("strategy") or "None"
    webhook = conversion.get("webhook")
    if strategy not in _STRATEGIES:
        yield causes.not_supported("spec.conversion.strategy", strategy, _STRATEGIES)
    elif strategy == "Webhook":
        yield from _check_webhook(cast("Object", webhook or {}))
    elif webhook:
        for field in ("clientConfig", "conversionReviewVersions"):
            if webhook.get(field):
                name = "webhookClientConfig" if field == "clientConfig" else field
                detail = "should not be set when strategy is not set to Webhook"
                yield causes.forbidden(f"spec.conversion.{name}", detail)
    if old is None:
        yield from _check_approval(crd_object)


def _check_webhook(webhook: Object) -> Iterator[Cause]:
    place = "spec.conversion.webhookClientConfig"
    config = webhook.get("clientConfig")
    if config is None:
        yield causes.required(place, "required when strategy is set to Webhook")
    else:
        yield from check_client_config(cast("Object", config), place)
        yield from _check_authority(str(config.get("caBundle") or ""), f"{place}.caBundle")
    place = "spec.conversion.conversionReviewVersions"
    versions = cast("list[str]", webhook.get("conversionReviewVersions") or [])
    if not versions:
        yield causes.required(place)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield causes.invalid(f"{place}[{index}]", version, "duplicate version")
            continue
        for problem in dns1035_label_problems(version):
            yield causes.invalid(f"{place}[{index}]", version, problem)
    if not set(versions) & set(_REVIEW_VERSIONS):
        detail = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        yield causes.invalid(place, versions, detail)
    elif "v1" not in versions:
        # Only this one is spoken here: told now, and not when an object is to be read.
        yield causes.invalid(place, versions, "must include v1, the only version sent by this hub")


def _check_authority(bundle: str, place: str) -> Iterator[Cause]:
    if not bundle:
        return
    try:
        # As the connection will read it.
        authority = base64.b64decode(bundle, validate=True).decode("ascii")
        ssl.create_default_context(cadata=authority)
    except (ValueError, ssl.SSLError):
        detail = "unable to load root certificates: unable to parse bytes as PEM block"
        yield causes.invalid(place, "<CA bundle>", detail)


def _check_names(names: Object) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        value, place = str(names.get(field) or ""), f"spec.names.{field}"
        if not value:
            yield causes.required(place)
            continue
        is_kind = field in ("kind", "listKind")
        prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
        for problem in dns1035_label_problems(value.lower() if is_kind else value):
            yield causes.invalid(place, value, f"{prefix}{problem}")
    for field in ("shortNames", "categories"):
        for index, value in enumerate(cast("list[str]", names.get(field) or [])):
            for problem in dns1035_label_problems(value):
                yield causes.invalid(f"spec.names.{field}[{index}]", value, problem)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        detail = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", names["listKind"], detail)


def _check_approval(crd_object: Object) -> Iterator[Cause]:
    """Yield whether the definition may be in a group of the Kubernetes project."""
    group = f".{_spec(crd_object).get('group') or ''}"
    if not group.endswith(_PROTECTED):
        return
    place = f"metadata.annotations[{_APPROVAL}]"
    approval = annotations_of(crd_object).get(_APPROVAL)
    needed = f'protected groups must have approval annotation "{_APPROVAL}"'
    if not approval:
        yield causes.required(place, f"{needed}, {_APPROVAL_LINK}")
    elif not approval.startswith(("unapproved", "http://", "https://")):
        detail = f'{needed} with either a URL or a reason starting with "unapproved"'
        yield causes.invalid(place, approval, f"{detail}, {_APPROVAL_LINK}")


def _check_stored(crd_object: Object) -> Iterator[Cause]:
    stored = cast("list[str]", find_at(crd_object, "status", "storedVersions") or [])
    place = "status.storedVersions"
    if not stored:
        yield causes.invalid(place, None, "must have at least one stored version")
        return
    versions = cast("list[Object]", _spec(crd_object).get("versions") or [])
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            detail = f"must have the storage version {version.get('name')}"
            yield causes.invalid(place, stored, detail)


def _check_kept(new: Object, old: Object) -> Iterator[Cause]:
    """Check what may not go or change.

    A version that objects may still be stored in stays; group and plural never change, scope and
    kind only before the definition is served.
    """
    stored = cast("list[str]", find_at(new, "status", "storedVersions") or [])
    versions = cast("list[Object]", _spec(new).get("versions") or [])
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield causes.invalid(f"status.storedVersions[{index}]", name, detail)
    fields = [("group",), ("names", "plural")]
    if is_true(find_at(old, "status", "conditions"), ESTABLISHED):
        fields += [("scope",), ("names", "kind")]
    for path in fields:
        value = find_at(_spec(new), *path)
        if value != find_at(_spec(old), *path):
            yield causes.invalid(f"spec.{'.'.join(path)}", value, "field is immutable")


def _spec(crd_object: Object) -> Object:
    return cast("Object", crd_object.get("spec") or {})
