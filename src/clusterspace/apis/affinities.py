"""Which clusters are meant: by name, label, provider, region or zone. Pure.

Policies, overrides and ResourceRegistries say it in the same words, a ClusterAffinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.selectors import EVERYTHING, LabelSelector, label_selector_of

_IN: Final = "In"
_NOT_IN: Final = "NotIn"


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a cluster that affinities and spreads select by."""

    name: str
    labels: Mapping[str, str]
    provider: str = ""
    region: str = ""
    zones: frozenset[str] = frozenset()

    def values_of(self, field: str) -> frozenset[str]:
        """Return the values of a field; none when it is not set.

        Fields are `cluster`, `provider`, `region`, `zone`, and `label:KEY`.
        """
        if field == "zone":
            return self.zones
        kind, _, key = field.partition(":")
        values = {
            "cluster": self.name,
            "provider": self.provider,
            "region": self.region,
            "label": self.labels.get(key),
        }
        value = values.get(kind)
        return frozenset({value} if value else ())


def traits_of(cluster: Object) -> Traits:
    """Return the properties of a Cluster that affinities and spreads select by."""
    spec = cast("Object", cluster.get("spec") or {})
    zones = spec.get("zones") or [spec.get("zone")]
    return Traits(
        name=name_of(cluster),
        labels=labels_of(cluster),
        provider=str(spec.get("provider") or ""),
        region=str(spec.get("region") or ""),
        zones=frozenset(str(zone) for zone in zones if zone),
    )


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A set of values that `provider`, `region` or `zone` must, or must not, be one of."""

    field: str
    is_in: bool
    values: frozenset[str]

    def matches(self, traits: Traits) -> bool:
        """Whether the cluster satisfies it; a cluster without the field has none of the values."""
        return bool(traits.values_of(self.field) & self.values) is self.is_in


@dataclass(frozen=True, slots=True)
class ClusterAffinity:
    """A choice of clusters; everything it asks for must hold, and asking for nothing is all."""

    names: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    labels: LabelSelector = EVERYTHING
    fields: tuple[FieldRequirement, ...] = ()

    def matches(self, traits: Traits) -> bool:
        """Whether the affinity selects the cluster."""
        return (
            traits.name not in self.excluded
            and (not self.names or traits.name in self.names)
            and self.labels.matches(traits.labels)
            and all(each.matches(traits) for each in self.fields)
        )

    def is_denied_by(self, traits: Traits) -> bool:
        """Whether the cluster says of itself what the affinity does not want.

        A label or a field that it does not have says nothing: it may be lost.
        """
        labels = traits.labels
        return any(
            each.key in labels and not each.matches(labels) for each in self.labels.requirements
        ) or any(traits.values_of(each.field) and not each.matches(traits) for each in self.fields)


EVERY_CLUSTER: Final = ClusterAffinity()


def read_affinity(affinity: Mapping[str, Any] | None, *, place: str) -> ClusterAffinity:
    """Read a ClusterAffinity, as in policies and overrides; an absent one means every cluster."""
    if affinity is None:
        return EVERY_CLUSTER
    selector = affinity.get("labelSelector")
    expressions = cast(
        "list[Object]", find_at(affinity.get("fieldSelector"), "matchExpressions") or []
    )
    return ClusterAffinity(
        names=frozenset(affinity.get("clusterNames") or ()),
        excluded=frozenset(affinity.get("exclude") or ()),
        labels=EVERYTHING if selector is None else label_selector_of(selector),
        fields=tuple(
            _read_field(each, f"{place}.fieldSelector.matchExpressions[{index}]")
            for index, each in enumerate(expressions)
        ),
    )


def _read_field(expression: Object, place: str) -> FieldRequirement:
    field, operator = str(expression.get("key")), str(expression.get("operator"))
    if field not in ("provider", "region", "zone"):
        raise MalformedSelector(
            f"{place}: clusters have a provider, a region and zones, no {field}", place=place
        )
    if operator not in (_IN, _NOT_IN):
        raise MalformedSelector(
            f"{place}: the operator is {_IN} or {_NOT_IN}, not {operator}", place=place
        )
    values = frozenset(str(value) for value in expression.get("values") or ())
    return FieldRequirement(field, operator == _IN, values)
