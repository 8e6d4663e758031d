"""Everything a kube-apiserver refuses a CustomResourceDefinition for, in its words."""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.builtins.definitions.reading import ESTABLISHED
from clusterspace.builtins.definitions.versions import check_versions
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.conditions import is_true
from clusterspace.kube.names import dns1035_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of

_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_APPROVAL: Final = "api-approved.kubernetes.io"
_APPROVAL_LINK: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
_PROTECTED: Final = (".k8s.io", ".kubernetes.io")
_WEBHOOK_REFUSED: Final = (
    "conversion webhooks are not supported: serve versions that differ only in fields "
    "the others may lose, with strategy None"
)
_IMMUTABLE: Final = "field is immutable"


def validate_definition(crd_object: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse a new definition, beside those of any object's metadata."""
    return (*_check_name(crd_object), *_check_spec(crd_object), *_check_stored(crd_object))


def validate_definition_update(new: Object, old: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse a change of a definition."""
    found = (*_check_spec(new, old), *_check_stored(new), *_check_kept_versions(new))
    return (*found, *_check_immutable(new, old))


def _check_name(crd_object: Object) -> Iterator[Cause]:
    name, spec = name_of(crd_object), _spec(crd_object)
    wanted = f"{find_at(spec, 'names', 'plural') or ''}.{spec.get('group') or ''}"
    if name and name != wanted:
        yield causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _check_spec(crd_object: Object, old: Object | None = None) -> Iterator[Cause]:
    spec = _spec(crd_object)
    yield from _check_group(str(spec.get("group") or ""))
    yield from _check_scope(spec.get("scope"))
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true "
            "in spec.versions[*].schema instead"
        )
        yield causes.invalid("spec.preserveUnknownFields", True, detail)
    yield from check_versions(spec, None if old is None else _spec(old))
    yield from _check_names(cast("Object", spec.get("names") or {}))
    yield from _check_conversion(cast("Object", spec.get("conversion") or {}))
    if old is None:
        yield from _check_approval(crd_object)


def _check_group(group: str) -> Iterator[Cause]:
    if not group:
        yield causes.required("spec.group")
        return
    problems = dns1123_subdomain_problems(group)
    for problem in problems:
        yield causes.invalid("spec.group", group, problem)
    if not problems and "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _check_scope(scope: Any) -> Iterator[Cause]:
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in _SCOPES:
        yield causes.not_supported("spec.scope", scope, _SCOPES)


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


def _check_conversion(conversion: Object) -> Iterator[Cause]:
    strategy = conversion.get("strategy") or "None"
    webhook = conversion.get("webhook")
    if strategy not in _STRATEGIES:
        yield causes.not_supported("spec.conversion.strategy", strategy, _STRATEGIES)
    elif strategy == "Webhook":
        yield causes.invalid("spec.conversion.strategy", strategy, _WEBHOOK_REFUSED)
    elif webhook:
        for field in ("clientConfig", "conversionReviewVersions"):
            if webhook.get(field):
                name = "webhookClientConfig" if field == "clientConfig" else field
                detail = "should not be set when strategy is not set to Webhook"
                yield causes.forbidden(f"spec.conversion.{name}", detail)


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


def _check_kept_versions(new: Object) -> Iterator[Cause]:
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


def _check_immutable(new: Object, old: Object) -> Iterator[Cause]:
    """Yield what may not change: group and plural never, scope and kind once it is served."""
    fields = [("group",), ("names", "plural")]
    if is_true(find_at(old, "status", "conditions"), ESTABLISHED):
        fields += [("scope",), ("names", "kind")]
    for path in fields:
        value = find_at(_spec(new), *path)
        if value != find_at(_spec(old), *path):
            yield causes.invalid(f"spec.{'.'.join(path)}", value, _IMMUTABLE)


def _spec(crd_object: Object) -> Object:
    return cast("Object", crd_object.get("spec") or {})
