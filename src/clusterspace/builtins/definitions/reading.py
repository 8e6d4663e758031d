"""A CustomResourceDefinition as values: names, versions, schemas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, resource_version_of
from clusterspace.kube.resources import version_priority

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
