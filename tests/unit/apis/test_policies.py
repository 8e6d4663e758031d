"""Resource selectors: what they mean, and how precisely."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.policies import Precision, ResourceSelector, best_precision, selectors_of
from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

WEB = config_map("web", namespace="shop", labels={"app": "web"})


def selector(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", **fields}


def precision(*selectors: Object) -> Precision:
    return best_precision(selectors_of({"spec": {"resourceSelectors": list(selectors)}}), WEB)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (selector(), Precision.EVERYTHING),
        (selector(labelSelector={}), Precision.BY_LABELS),
        (selector(labelSelector={"matchLabels": {"app": "web"}}), Precision.BY_LABELS),
        (selector(labelSelector={"matchLabels": {"app": "shop"}}), Precision.NOT_MEANT),
        (selector(name="web"), Precision.BY_NAME),
        (selector(name="other", labelSelector={}), Precision.NOT_MEANT),
        (selector(name="web", labelSelector={"matchLabels": {"no": "no"}}), Precision.BY_NAME),
        (selector(namespace="shop"), Precision.EVERYTHING),
        (selector(namespace="other", name="web"), Precision.NOT_MEANT),
        (selector(kind="Secret"), Precision.NOT_MEANT),
        (selector(apiVersion="v2"), Precision.NOT_MEANT),
    ],
)
def test_a_selector_means_exactly_what_it_says(written: Object, expected: Precision) -> None:
    assert precision(written) is expected


def test_the_most_precise_selector_counts_and_none_means_nothing() -> None:
    assert precision(selector(), selector(name="web"), selector(name="x")) is Precision.BY_NAME
    assert precision() is Precision.NOT_MEANT


def test_a_selector_that_cannot_be_read_is_named() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}

    with pytest.raises(MalformedSelector) as refused:
        precision(selector(), selector(labelSelector=wrong))

    assert refused.value.place == "spec.resourceSelectors[1].labelSelector"


@given(st.lists(st.sampled_from(["web", "", "other"]), max_size=4))
def test_the_order_of_selectors_does_not_matter(names: list[str]) -> None:
    read = tuple(ResourceSelector("v1", "ConfigMap", name=name) for name in names)

    assert best_precision(read, WEB) == best_precision(tuple(reversed(read)), WEB)
