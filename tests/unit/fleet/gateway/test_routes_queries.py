"""Selectors and versions of a URL reach a cluster in its own words."""

import pytest

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.routes import Naming

NAMES = Naming("m1", qualifies_names=True)


def rewritten(key: str, value: str) -> str:
    query = Query((("limit", "500"), (key, value)))

    answer = routes.rewrite_query(query, NAMES, version_for=lambda version: f"native of {version}")

    assert answer.get("limit") == "500"
    return answer.get(key)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("metadata.name=web.clusterspace.m1", "metadata.name=web"),
        ("metadata.name!=web.clusterspace.m1", "metadata.name!=web"),
        ("spec.nodeName==n.clusterspace.m1", "spec.nodeName=n"),
        ("involvedObject.uid=n.clusterspace.m1,b=c", "b=c,involvedObject.uid=n"),
        (r"a=x\,y.clusterspace.m1", r"a=x\,y"),
        ("metadata.namespace=ns.clusterspace.m1", "metadata.namespace=ns"),
    ],
)
def test_every_field_selector_loses_the_suffix_of_the_cluster(asked: str, expected: str) -> None:
    assert rewritten("fieldSelector", asked) == expected


@pytest.mark.parametrize(
    "asked", ["metadata.name=web", "b=2,a=1", "metadata.name=web.clusterspace.m2", ""]
)
def test_selectors_without_it_stay_as_they_were_written(asked: str) -> None:
    assert rewritten("fieldSelector", asked) == asked


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("kubernetes.io/service-name=web.clusterspace.m1", "kubernetes.io/service-name=web"),
        ("a,!b,c>1,job-name=j.clusterspace.m1", "a,!b,c>1,job-name=j"),
        ("job-name in (a.clusterspace.m1, b.clusterspace.m2)", "job-name in (a,b.clusterspace.m2)"),
        ("app=web.clusterspace.m1", "app=web.clusterspace.m1"),
        ("app in (a,  b)", "app in (a,  b)"),
    ],
)
def test_only_labels_that_hold_names_lose_it(asked: str, expected: str) -> None:
    assert rewritten("labelSelector", asked) == expected


def test_a_label_value_may_be_too_long_before_it_loses_the_suffix() -> None:
    service = "s" * 60

    asked = f"kubernetes.io/service-name={service}.clusterspace.m1"

    assert rewritten("labelSelector", asked) == f"kubernetes.io/service-name={service}"


@pytest.mark.parametrize(("asked", "expected"), [("v", "native of v"), ("", ""), ("0", "0")])
def test_an_aggregated_version_becomes_the_clusters_own(asked: str, expected: str) -> None:
    assert rewritten("resourceVersion", asked) == expected


@pytest.mark.parametrize("key", ["fieldSelector", "labelSelector"])
def test_a_selector_that_cannot_be_read_is_refused(key: str) -> None:
    with pytest.raises(MalformedSelector):
        rewritten(key, "a=b=(")
