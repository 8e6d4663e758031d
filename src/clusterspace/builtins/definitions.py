"""A CustomResourceDefinition as values: names, versions, schemas; and what becomes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from clusterspace.kube.conditions import Condition, is_true, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    resource_version_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import version_priority
from clusterspace.kube.times import parse_time

GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"
KIND: Final = "CustomResourceDefinition"
API_VERSION: Final = f"{GROUP}/v1"

FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
ESTABLISHED: Final = "Established"
NAMES_ACCEPTED: Final = "NamesAccepted"
TERMINATING: Final = "Terminating"


@dataclass(frozen=True, slots=True)
class Names:
    """What a resource and its kind are called."""

    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @classmethod
    def read(cls, raw: Mapping[str, Any] | None) -> "Names":
        """Read `spec.names` or `status.acceptedNames`."""
        names = raw or {}
        return cls(
            plural=str(names.get("plural") or ""),
            singular=str(names.get("singular") or ""),
            kind=str(names.get("kind") or ""),
            list_kind=str(names.get("listKind") or ""),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
        )

    def to_object(self) -> Object:
        """Return them as `status.acceptedNames` has them: plural and kind even when empty."""
        optional: Object = {
            "singular": self.singular,
            "shortNames": list(self.short_names),
            "listKind": self.list_kind,
            "categories": list(self.categories),
        }
        given = {key: value for key, value in optional.items() if value}
        return {"plural": self.plural, "kind": self.kind, **given}


@dataclass(frozen=True, slots=True)
class DefinedVersion:
    """One version of a custom resource."""

    name: str
    is_served: bool
    is_storage: bool
    raw_schema: Object
    columns: tuple[Object, ...]
    has_status: bool
    scale: Object | None
    selectable: tuple[str, ...]
    deprecation: str | None = None
    """Why not to use it any more, in the author's words or, if empty, in ours."""

    @classmethod
    def read(cls, raw: Object) -> "DefinedVersion":
        """Read one of `spec.versions`."""
        subresources = _object(raw, "subresources")
        selectable = cast("list[Object]", raw.get("selectableFields") or [])
        return cls(
            name=str(raw.get("name") or ""),
            is_served=bool(raw.get("served")),
            is_storage=bool(raw.get("storage")),
            raw_schema=cast("Object", find_at(raw, "schema", "openAPIV3Schema") or {}),
            columns=tuple(raw.get("additionalPrinterColumns") or ()),
            has_status="status" in subresources,
            scale=cast("Object | None", subresources.get("scale")),
            selectable=tuple(str(each.get("jsonPath") or "") for each in selectable),
            deprecation=str(raw.get("deprecationWarning") or "") if raw.get("deprecated") else None,
        )


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, with the status that says how far it has come."""

    name: str
    group: str
    names: Names
    accepted: Names
    is_namespaced: bool
    versions: tuple[DefinedVersion, ...]
    is_established: bool
    is_ending: bool
    webhook: Object | None = None
    """The client configuration of its conversion webhook, if it has one."""
    revision: int = field(default=0, compare=False)
    """When it was last written; two definitions that say the same are equal all the same."""

    def warning_about(self, version: DefinedVersion) -> str:
        """Return what to tell those who use a version; nothing if it may be used."""
        if version.deprecation is None:
            return ""
        said = f"{self.group}/{version.name} {self.names.kind} is deprecated"
        better = [
            each.name
            for each in self.versions
            if each.is_served and each.deprecation is None
            if version_priority(each.name) < version_priority(version.name)
        ]
        if better:
            best = min(better, key=version_priority)
            said = f"{said}; use {self.group}/{best} {self.names.kind}"
        return version.deprecation or said

    @property
    def storage_version(self) -> str:
        """The version objects are stored in."""
        return next((each.name for each in self.versions if each.is_storage), "")


def _webhook_of(spec: Object) -> Object | None:
    conversion = _object(spec, "conversion")
    if conversion.get("strategy") != "Webhook":
        return None
    return _object(_object(conversion, "webhook"), "clientConfig")


def read_definition(crd_object: Object) -> Definition:
    """Read a definition that has been checked and defaulted."""
    spec, status = _object(crd_object, "spec"), _object(crd_object, "status")
    versions = cast("list[Object]", spec.get("versions") or [])
    return Definition(
        name=name_of(crd_object),
        group=str(spec.get("group") or ""),
        names=Names.read(spec.get("names")),
        accepted=Names.read(status.get("acceptedNames")),
        is_namespaced=spec.get("scope") == "Namespaced",
        versions=tuple(map(DefinedVersion.read, versions)),
        is_established=is_true(status.get("conditions"), ESTABLISHED),
        is_ending=bool(metadata_of(crd_object).get("deletionTimestamp")),
        webhook=_webhook_of(spec),
        revision=int(version) if (version := resource_version_of(crd_object)).isdecimal() else 0,
    )


def _object(struct: Mapping[str, Any], key: str) -> Object:
    value = struct.get(key)
    return cast("Object", value) if isinstance(value, dict) else {}


# -- which names it gets, whether it is served, how it ends ---------------------------------------

_PENDING: Final = Condition(
    TERMINATING,
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
DELETING: Final = Condition(
    TERMINATING,
    "True",
    "InstanceDeletionInProgress",
    "CustomResource deletion is in progress",
)
DELETED: Final = Condition(
    TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances"
)
_NO_CONFLICT: Final = Condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
_SERVED: Final = Condition(
    ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted"
)
_NOT_SERVED: Final = Condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")


def plan_status(crd_object: Object, others: Iterable[Object], now: float) -> Object:
    """Return the status of a definition beside these others; the same one when it is right.

    Names that another definition of the group has are not given away twice. A definition that
    was served once stays served, with the names it had.
    """
    status = cast("Object", crd_object.get("status") or {})
    own, name = Names.read(find_at(crd_object, "spec", "names")), name_of(crd_object)
    group, resources, kinds = find_at(crd_object, "spec", "group"), set[str](), set[str]()
    for other in others:
        if find_at(other, "spec", "group") != group or name_of(other) == name:
            continue
        # Its names alone: every definition is planned beside all others of its group.
        names = Names.read(find_at(other, "status", "acceptedNames"))
        resources |= {names.plural, names.singular, *names.short_names} - {""}
        kinds |= {names.kind, names.list_kind} - {""}
    # Each name is accepted on its own; one that is taken leaves what was accepted before.
    accepted, conflict = Names.read(status.get("acceptedNames")), None
    for name_field, reason, taken in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("short_names", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("list_kind", "ListKindConflict", kinds),
    ):
        wanted: str | tuple[str, ...] = getattr(own, name_field)
        asked = (wanted,) if isinstance(wanted, str) else wanted
        lost = [f'"{each}" is already in use' for each in asked if each in taken]
        if lost:
            message = lost[0] if len(lost) == 1 else f"[{', '.join(lost)}]"
            conflict = Condition(NAMES_ACCEPTED, "False", reason, message)
        else:
            accepted = replace(accepted, **{name_field: wanted})
    accepted = replace(accepted, categories=own.categories)
    conditions = status.get("conditions")
    changed = set_condition(conditions, conflict or _NO_CONFLICT, now).conditions
    if conflict is None:
        changed = set_condition(changed, _SERVED, now).conditions
    elif not is_true(conditions, ESTABLISHED):
        changed = set_condition(changed, _NOT_SERVED, now).conditions
    planned = {**status, "conditions": changed, "acceptedNames": accepted.to_object()}
    return status if planned == status else planned


def mark_definition_deleted(marked: Object, old: Object) -> Object:
    """Return how a definition looks that is being deleted: held until its objects are gone.

    Unlike other kinds it keeps its generation and has no grace period.
    """
    metadata = metadata_of(marked)
    if metadata_of(old).get("deletionTimestamp"):
        return with_metadata(marked, deletionGracePeriodSeconds=None)
    finalizers = cast("list[str]", metadata.get("finalizers") or [])
    protected = with_metadata(
        marked,
        deletionGracePeriodSeconds=None,
        generation=metadata_of(old).get("generation"),
        finalizers=finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER],
    )
    return with_condition(protected, _PENDING, parse_time(metadata["deletionTimestamp"]))


def with_condition(crd_object: Object, condition: Condition, now: float) -> Object:
    """Return the definition with the condition as wanted."""
    conditions = find_at(crd_object, "status", "conditions")
    changed = set_condition(conditions, condition, now)
    if not changed.is_changed:
        return crd_object
    return with_value(crd_object, changed.conditions, "status", "conditions")


def released(crd_object: Object) -> Object:
    """Return the definition without our hold on it."""
    finalizers = cast("list[str]", metadata_of(crd_object).get("finalizers") or [])
    kept = [each for each in finalizers if each != FINALIZER]
    return with_metadata(crd_object, finalizers=kept or None)
