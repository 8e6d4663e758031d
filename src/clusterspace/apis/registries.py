"""ResourceRegistries: which kinds of which clusters Karmada's search shows. Pure.

Where two registries select the same kind of the same cluster, what either selects is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from clusterspace.apis.affinities import ClusterAffinity, Traits, read_affinity
from clusterspace.apis.policies import affinity_causes
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

GROUP: Final = "search.karmada.io"
KIND: Final = "ResourceRegistry"
RESOURCE_REGISTRIES: Final = GroupVersionResource(GROUP, "v1alpha1", "resourceregistries")

CACHED_FROM: Final = "resource.karmada.io/cached-from-cluster"
"""The annotation that says which cluster an object is from; shown, and never stored."""

Namespaces: TypeAlias = frozenset[str]
"""The namespaces of a kind that are selected; empty for all of them."""

EVERYWHERE: Final[Namespaces] = frozenset()


@dataclass(frozen=True, slots=True)
class Registry:
    """One ResourceRegistry, read."""

    clusters: ClusterAffinity
    kinds: Mapping[GroupVersionKind, Namespaces]


def read_registry(registry: Object) -> Registry:
    """Read a ResourceRegistry; MalformedSelector when its clusters cannot be told."""
    spec = cast("Object", registry.get("spec") or {})
    kinds: dict[GroupVersionKind, Namespaces] = {}
    for each in cast("list[Object]", spec.get("resourceSelectors") or []):
        kind = GroupVersionKind.of(str(each.get("apiVersion") or ""), str(each.get("kind") or ""))
        named = frozenset({str(each["namespace"])} if each.get("namespace") else ())
        kinds[kind] = _either(kinds.get(kind), named)
    clusters = read_affinity(spec.get("targetCluster") or {}, place="spec.targetCluster")
    return Registry(clusters, kinds)


def select(
    registries: Iterable[Registry], kind: GroupVersionKind, clusters: Iterable[Traits]
) -> dict[str, Namespaces] | None:
    """Return in which clusters a kind is selected, and in which namespaces there.

    None when no registry speaks of the kind at all, whatever the clusters.
    """
    selecting = [each for each in registries if kind in each.kinds]
    if not selecting:
        return None
    found: dict[str, Namespaces] = {}
    for traits in clusters:
        for each in selecting:
            if each.clusters.matches(traits):
                found[traits.name] = _either(found.get(traits.name), each.kinds[kind])
    return found


def registry_causes(registry: Object) -> Iterator[Cause]:
    """Yield every reason why a ResourceRegistry cannot mean what it says."""
    spec = cast("Object", registry.get("spec") or {})
    yield from affinity_causes(spec.get("targetCluster"), "spec.targetCluster")
    for index, each in enumerate(cast("list[Object]", spec.get("resourceSelectors") or [])):
        place = f"spec.resourceSelectors[{index}]"
        for field in ("apiVersion", "kind"):
            if not each.get(field):
                yield causes.required(f"{place}.{field}")
        version = str(each.get("apiVersion") or "")
        if version.count("/") > 1:
            why = "write VERSION, or GROUP/VERSION"
            yield causes.invalid(f"{place}.apiVersion", version, why)
        namespace = str(each.get("namespace") or "")
        for why in dns1123_label_problems(namespace) if namespace else ():
            yield causes.invalid(f"{place}.namespace", namespace, why)


def _either(known: Namespaces | None, more: Namespaces) -> Namespaces:
    if known is None:
        return more
    return known | more if known and more else EVERYWHERE
