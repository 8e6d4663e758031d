"""Definitions of our kinds that are on a kube-apiserver already: taken as they are, or refused.

Karmada and KubeFleet install the same kinds. What they wrote stays as it is; it must serve the
version that our programs speak, keep objects in a version that is known here, and mean the same
kind. A version nobody here has heard of may keep fields that our programs would write away.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.builtins.definitions import Definition, read_definition
from clusterspace.kube.objects import Object, name_of

KNOWN_VERSIONS: Final = {
    "resourcebindings.work.karmada.io": ("v1alpha1", "v1alpha2"),
    "clusterresourcebindings.work.karmada.io": ("v1alpha1", "v1alpha2"),
}
"""Versions that others serve beside ours, and what is in them."""


def refusal_of(existing: Object, ours: Object) -> str:
    """Return why a definition that is there cannot be used; empty when it can."""
    there, here, name = read_definition(existing), read_definition(ours), name_of(ours)
    if (there.names.kind, there.is_namespaced) != (here.names.kind, here.is_namespaced):
        return (
            f"{name} is defined there as another kind: {_kind(there)}, and here as {_kind(here)};"
            " a hub has to mean the same by it"
        )
    unknown = unknown_versions(existing, ours)
    if unknown:
        return unknown
    served = {each.name: each for each in there.versions if each.is_served}
    missing = [each.name for each in here.versions if each.name not in served]
    if missing:
        return (
            f"{name} is defined there and does not serve version {', '.join(missing)}, which our"
            " programs speak: have it served"
        )
    stored = there.storage_version
    if stored not in [each.name for each in here.versions] and there.webhook is None:
        return (
            f"{name} is stored there in version {stored} without a conversion webhook, so fields"
            f" of {here.storage_version} would be lost: store it in {here.storage_version}"
        )
    for version in here.versions:
        if version.has_status != served[version.name].has_status:
            status = "a status subresource" if version.has_status else "no status subresource"
            return f"{name} {version.name} has to have {status}, and is defined otherwise there"
    return ""


def unknown_versions(existing: Object, ours: Object) -> str:
    """Return that a definition has versions nobody here knows; empty when it has none.

    Asked of our own definitions, too: a later version of ours may have written them.
    """
    here, name = read_definition(ours), name_of(ours)
    known = KNOWN_VERSIONS.get(name, tuple(each.name for each in here.versions))
    unknown = [each.name for each in read_definition(existing).versions if each.name not in known]
    if not unknown:
        return ""
    return (
        f"{name} is defined there with version {', '.join(unknown)}, which this version of"
        f" Clusterspace does not know (it knows {', '.join(known)}): take a newer Clusterspace"
    )


def missing_fields(existing: Object, ours: Object) -> tuple[str, ...]:
    """Return the fields of ours that a definition does not know: what is written there is lost."""
    there = {each.name: each.raw_schema for each in read_definition(existing).versions}
    found: dict[str, None] = {}
    for version in read_definition(ours).versions:
        known = set(_fields(there.get(version.name, {})))
        found.update(
            dict.fromkeys(each for each in _fields(version.raw_schema) if each not in known)
        )
    return tuple(found)


def _fields(schema: Any, path: str = "") -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    read = cast("Object", schema)
    for name, field in cast("Object", read.get("properties") or {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here
        yield from _fields(field, here)
    yield from _fields(read.get("items"), f"{path}[]")
    yield from _fields(read.get("additionalProperties"), f"{path}{{}}")


def _kind(definition: Definition) -> str:
    scope = "namespaced" if definition.is_namespaced else "of the cluster"
    return f"{definition.names.kind}, {scope}"
