"""KubeFleet's envelopes: manifests on the hub that nothing there acts on, for members to have.

    ClusterResourceEnvelope   objects without a namespace
    ResourceEnvelope          objects of its own namespace

A snapshot of a placement holds an envelope as it is; what members get is what is in it. So a quota
or a webhook can be placed that would already act on the hub if it were an object there.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.apis.fleet_placements import GROUP
from clusterspace.apis.works import why_at_home
from clusterspace.errors import Cause, Malformed
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, name_of, namespace_of, with_metadata
from clusterspace.kube.resources import GroupKind, GroupVersionKind

CLUSTER_KIND: Final = "ClusterResourceEnvelope"
NAMESPACED_KIND: Final = "ResourceEnvelope"
KINDS: Final = frozenset({GroupKind(GROUP, CLUSTER_KIND), GroupKind(GROUP, NAMESPACED_KIND)})
RESOURCES: Final = frozenset({"clusterresourceenvelopes", "resourceenvelopes"})

_KEPT_GROUPS: Final = ("cluster.kubernetes-fleet.io", GROUP)
"""Kinds of the fleet itself, which members have no use for."""


def is_envelope(kube_object: Object) -> bool:
    """Whether an object stands for what is in it."""
    group, slash, _ = str(kube_object.get("apiVersion")).partition("/")
    return bool(slash) and GroupKind(group, str(kube_object.get("kind"))) in KINDS


def contents_of(envelope: Object) -> tuple[Object, ...]:
    """Return the manifests in an envelope, by their keys; what cannot be read is left out.

    A manifest that names no namespace is in the envelope's.
    """
    data = envelope.get("data")
    written = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    found: list[Object] = []
    for key in sorted(written):
        if not any(True for _ in _shape_causes(written[key], "")):
            manifest = cast("Object", written[key])
            own = namespace_of(manifest) or namespace_of(envelope)
            found.append(with_metadata(manifest, namespace=own) if own else manifest)
    return tuple(found)


def opened(manifest: Object) -> tuple[Object, ...]:
    """Return what is placed of a manifest: itself, or what is in it."""
    return contents_of(manifest) if is_envelope(manifest) else (manifest,)


def envelope_causes(envelope: Object) -> Iterator[Cause]:
    """Yield why an envelope cannot be as it is.

    The scope of kinds is not looked at: a hub need not serve them. Clusters do, and refuse what is
    not in the namespace that it came from.
    """
    data = envelope.get("data")
    written = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    seen: dict[tuple[str, ...], str] = {}
    for key, manifest in sorted(written.items()):
        field = f"data[{key}]"
        misshapen = list(_shape_causes(manifest, field))
        yield from misshapen
        if misshapen:
            continue
        kind = GroupVersionKind.of(str(manifest["apiVersion"]), str(manifest["kind"]))
        own, named = namespace_of(envelope), namespace_of(manifest)
        if own and named and named != own:
            why = f"an envelope of namespace {own} holds objects of {own}"
            yield causes.invalid(f"{field}.metadata.namespace", named, why)
        if not own and named:
            why = f"is for a {NAMESPACED_KIND}: a {CLUSTER_KIND} holds objects without a namespace"
            yield causes.invalid(f"{field}.metadata.namespace", named, why)
        if kind.group in _KEPT_GROUPS:
            why = "is of the fleet itself, and never placed"
            yield causes.invalid(f"{field}.kind", kind.kind, why)
        if why := why_at_home(with_metadata(manifest, namespace=named or own)):
            yield causes.forbidden(field, why)
        subject = (kind.group, kind.kind, named or own, name_of(manifest))
        if subject in seen:
            yield causes.duplicate(field, f"{kind.kind} {name_of(manifest)} of {seen[subject]}")
        seen[subject] = f"data[{key}]"


def _shape_causes(manifest: Any, field: str) -> Iterator[Cause]:
    """Yield what a manifest lacks to be an object with a name."""
    if not isinstance(manifest, dict):
        yield causes.invalid(field, manifest, "must be an object")
        return
    written = cast("Object", manifest)
    for name in ("apiVersion", "kind"):
        if not isinstance(written.get(name), str) or not written[name]:
            yield causes.required(f"{field}.{name}", "what is enveloped is an object")
            return
    try:
        GroupVersionKind.of(str(written["apiVersion"]), str(written["kind"]))
    except Malformed as error:
        yield causes.invalid(f"{field}.apiVersion", written["apiVersion"], str(error))
        return
    metadata = written.get("metadata")
    named = cast("Object", metadata) if isinstance(metadata, dict) else {}
    texts = [named.get(each) for each in ("name", "namespace")]
    if not isinstance(texts[0], str) or not texts[0]:
        why = "names are not made up for what is enveloped: generateName is not enough"
        yield causes.required(f"{field}.metadata.name", why)
    if not isinstance(texts[1], str | None):
        yield causes.invalid(f"{field}.metadata.namespace", texts[1], "must be a text")
    for words in ("labels", "annotations"):
        marks: Any = named.get(words) or {}
        pairs = cast("Object", marks) if isinstance(marks, dict) else {"": None}
        if not all(isinstance(each, str) for each in pairs.values()):
            why = "must be texts by key"
            yield causes.invalid(f"{field}.metadata.{words}", cast("object", marks), why)
