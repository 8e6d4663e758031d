"""Labels that every object of the unified view has by being in its cluster, and that nobody stores.

    clusterspace.io/cluster              the cluster's name; that of the hub is karmada, or hub
    cluster.clusterspace.io/KEY          the label KEY of the Cluster; and region, provider, zone
    DOMAIN.cluster.clusterspace.io/KEY   the label DOMAIN/KEY of the Cluster

A label selector is taken apart into what it says of the cluster, which is judged here against each
Cluster before anybody is asked, and the rest, which is what clusters are sent. Where a stored label
has one of these keys, the view goes by the virtual one.

A cluster is in as many zones as its Cluster says, so a virtual label may have several values:
`zone=a` and `zone in (a,b)` hold if one of them does, `zone!=a` and `zone notin (a)` if all do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.kube.names import label_value_problems
from clusterspace.kube.objects import Object, labels_of
from clusterspace.kube.selectors import (
    LabelSelector,
    Operator,
    Requirement,
    parse_label_selector,
)

CLUSTER: Final = "clusterspace.io/cluster"
"""The label that is the name of the cluster."""

DOMAIN: Final = "cluster.clusterspace.io"
"""The prefix of labels that are those of the Cluster."""

_COMMON: Final = "clusterspace.io/"
"""In every key of ours: a selector without it is not even read."""

_COMMON_BYTES: Final = _COMMON.encode()

_NOTHING: Final = "nothing,!nothing"
"""A selector that nothing matches, in words that every API server reads."""

_NAMES_CLUSTERS: Final = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_EXCLUDES: Final = (Operator.NOT_EQUALS, Operator.NOT_IN)

ClusterLabels: TypeAlias = Mapping[str, frozenset[str]]
"""The virtual labels of all objects of one cluster, with all the values that each has."""


def labels_of_cluster(name: str, cluster: Object | None, *aliases: str) -> ClusterLabels:
    """Return the virtual labels that a cluster's objects have; None is for one without a Cluster.

    What the spec says of region, provider and zone counts before labels that are called the same.
    """
    labels = {CLUSTER: frozenset((name, *aliases))}
    if cluster is None:
        return labels
    for key, value in labels_of(cluster).items():
        domain, _, own = key.rpartition("/")
        labels[f"{domain}.{DOMAIN}/{own}" if domain else f"{DOMAIN}/{own}"] = frozenset((value,))
    spec: Any = cluster.get("spec") or {}
    said = {
        "region": [spec.get("region")],
        "provider": [spec.get("provider")],
        "zone": spec.get("zones") or [spec.get("zone")],
    }
    for key, values in said.items():
        if given := frozenset(str(value) for value in values if value):
            labels[f"{DOMAIN}/{key}"] = given
    return labels


def shown_in_rows(name: str, labels: ClusterLabels) -> bytes:
    """Return the labels as they stand beside the row of a Table: JSON, without its braces.

    Of several values the first is shown, by the alphabet; what could not be a label's is not shown.
    """
    shown = {key: min(values) for key, values in labels.items()} | {CLUSTER: name}
    fit = {key: value for key, value in shown.items() if not label_value_problems(value)}
    return msgspec.json.encode(fit)[1:-1]


def with_row_labels(labels: msgspec.Raw, shown: bytes) -> msgspec.Raw:
    """Return the labels of an object with those of `shown_in_rows`, which win."""
    own = bytes(labels)
    if own.startswith(b'{"') and _COMMON_BYTES not in own:
        return msgspec.Raw(b"{%b,%b" % (shown, own[1:]))  # as every row but a few has them
    if own in (b"", b"null", b"{}"):
        return msgspec.Raw(b"{%b}" % shown)
    try:
        stored = msgspec.json.decode(own, type=dict[str, Any])
    except msgspec.MsgspecError:
        return labels  # no labels at all: as its cluster wrote it
    return msgspec.Raw(msgspec.json.encode({**stored, **msgspec.json.decode(b"{%b}" % shown)}))


def is_virtual(key: str) -> bool:
    """Whether a label with this key is a virtual one, which no cluster is asked for."""
    domain = key.rpartition("/")[0]
    return key == CLUSTER or domain == DOMAIN or domain.endswith(f".{DOMAIN}")


@dataclass(frozen=True)
class ClusterSelector:
    """A label selector, taken apart."""

    requirements: tuple[Requirement, ...] = ()
    """What it says of the clusters that objects are in."""
    rest: str = ""
    """What it says of the objects themselves: this is what clusters are sent."""

    @property
    def rest_of_nothing(self) -> str:
        """The selector for a cluster that is not selected, and answers in good form with nothing.

        The rest stays in it: what a cluster would refuse, it refuses.
        """
        return f"{self.rest},{_NOTHING}" if self.rest else _NOTHING

    @cached_property
    def named(self) -> frozenset[str] | None:
        """The clusters that it names, of which it selects some; None when it names none.

        Only what says outright where, as in `=west` and `in (east,west)`, is a name. What says
        where not, and what is said of labels, select clusters that whoever wrote it may never have
        heard of: enough to look, too little to delete.
        """
        named: frozenset[str] | None = None
        for each in self.requirements:
            if each.key == CLUSTER and each.operator in _NAMES_CLUSTERS:
                named = each.values if named is None else named & each.values
        return named

    @property
    def judges_labels(self) -> bool:
        """Whether the labels of Clusters matter, which may change, and not their names alone."""
        return any(each.key != CLUSTER for each in self.requirements)

    def selects(self, labels: ClusterLabels) -> bool:
        """Whether objects of the cluster with these virtual labels are selected."""
        return all(_is_met(each, labels.get(each.key, frozenset())) for each in self.requirements)


def _is_met(requirement: Requirement, values: frozenset[str]) -> bool:
    if not values:
        return requirement.matches({})
    met = (requirement.matches({requirement.key: value}) for value in values)
    return all(met) if requirement.operator in _EXCLUDES else any(met)


def read_selector(text: str) -> ClusterSelector:
    """Take a label selector apart; raise MalformedSelector when it cannot be read.

    >>> read_selector("app=web,clusterspace.io/cluster=west").rest
    'app=web'
    """
    if _COMMON not in text:
        return ClusterSelector((), text)
    requirements = parse_label_selector(text).requirements
    own = tuple(each for each in requirements if is_virtual(each.key))
    if not own:
        return ClusterSelector((), text)
    rest = LabelSelector(tuple(each for each in requirements if not is_virtual(each.key)))
    return ClusterSelector(own, str(rest))
