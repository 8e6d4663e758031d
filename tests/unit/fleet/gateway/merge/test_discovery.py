"""What a fleet serves, when its clusters do not serve the same."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus import load_scenario

from clusterspace.client.discovery import read_aggregated
from clusterspace.fleet.gateway.merge.discovery import FleetApi, merge
from clusterspace.kube.discovery_documents import ServedGroup, aggregated
from clusterspace.kube.resources import GroupVersion, ResourceInfo, Subresource


def resource(
    plural: str, group: str = "", version: str = "v1", *, namespaced: bool = True
) -> ResourceInfo:
    kind = plural.removesuffix("s").title()
    verbs = ("get", "list")
    return ResourceInfo(group, version, kind, plural, kind.lower(), namespaced, verbs)


def only(api: FleetApi, group: str = "", version: str = "v1") -> ResourceInfo:
    served = api.find_version(GroupVersion(group, version))
    assert served is not None
    [info] = served.resources
    return info


def versions_of(api: FleetApi, group: str) -> list[str]:
    found = api.find_group(group)
    assert found is not None
    return [each.version for each in found.versions]


def test_a_fleet_of_equal_clusters_serves_what_each_serves() -> None:
    steps = load_scenario("apiserver", "discovery_aggregated")["steps"]
    core, named = (step["response"]["body"] for step in steps)
    resources = read_aggregated([core, named]).resources

    api = merge({"m1": resources, "m2": resources})

    assert read_aggregated([aggregated(api.groups, "v2")]).resources == resources
    assert api.disagreements == ()


def test_what_any_cluster_has_is_served() -> None:
    api = merge(
        {
            "m1": [resource("pods"), resource("widgets", "example.com")],
            "m2": [resource("pods"), resource("nodes"), resource("gadgets", "example.com")],
        }
    )

    served = [
        info.plural for group in api.groups for each in group.versions for info in each.resources
    ]
    assert served == ["pods", "nodes", "widgets", "gadgets"]


def test_verbs_short_names_categories_and_subresources_are_united() -> None:
    status = Subresource("status", "Pod", "", "v1", ("get",))
    scale = Subresource("scale", "Scale", "autoscaling", "v1", ("get", "patch"))
    one = replace(resource("pods"), short_names=("po",), subresources=(status,), singular="")
    other = replace(
        resource("pods"),
        verbs=("list", "watch"),
        short_names=("po", "p"),
        categories=("all",),
        subresources=(replace(status, verbs=("get", "update")), scale),
    )

    info = only(merge({"m1": [one], "m2": [other]}))

    assert info.verbs == ("get", "list", "watch")
    assert (info.short_names, info.categories, info.singular) == (("po", "p"), ("all",), "pod")
    assert info.subresources == (replace(status, verbs=("get", "update")), scale)


def test_most_clusters_are_right_about_a_resource_and_the_others_are_told_of() -> None:
    wide = replace(resource("widgets", "example.com", namespaced=False), verbs=("delete",))
    api = merge(
        {
            "m1": [wide],
            "m2": [resource("widgets", "example.com")],
            "m3": [resource("widgets", "example.com")],
        }
    )

    info = only(api, "example.com")
    assert info.namespaced
    assert "delete" not in info.verbs
    assert api.disagreements == (
        "clusters disagree about widgets of example.com/v1: "
        "Widget, cluster-wide in m1; Widget, namespaced in m2, m3",
    )


def test_of_equally_many_the_hub_is_right() -> None:
    wide = resource("widgets", "example.com", namespaced=False)

    api = merge({"m1": [resource("widgets", "example.com")], "karmada": [wide]})

    assert not only(api, "example.com").namespaced


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({"m1": ["v2", "v1"], "m2": ["v1"]}, ["v1", "v2"]),
        ({"m1": ["v1", "v2"], "m2": ["v2", "v1"]}, ["v2", "v1"]),
        ({"m1": ["v1beta1", "v1"], "m2": ["v1beta1"]}, ["v1beta1", "v1"]),
        ({"m1": ["v1"], "m2": ["v1beta1"]}, ["v1", "v1beta1"]),
        ({"m1": ["v1"], "m2": ["v1beta1"], "m3": ["v1beta1"]}, ["v1beta1", "v1"]),
        ({"m1": ["v1"], "m2": []}, ["v1"]),
    ],
    ids=str,
)
def test_the_preferred_version_is_the_best_that_most_clusters_have(
    served: dict[str, list[str]], expected: list[str]
) -> None:
    api = merge(
        {
            cluster: [resource("widgets", "example.com", version) for version in versions]
            for cluster, versions in served.items()
        }
    )

    assert versions_of(api, "example.com") == expected


def test_what_is_not_served_is_not_found() -> None:
    api = merge({"m1": [resource("pods")], "m2": []})

    assert api.find_group("apps") is None
    assert api.find_version(GroupVersion("", "v2")) is None
    assert api.find_version(GroupVersion("apps", "v1")) is None


infos = st.builds(
    resource,
    st.sampled_from(["pods", "widgets", "gadgets"]),
    st.sampled_from(["", "example.com"]),
    st.sampled_from(["v1", "v1beta1", "v2"]),
    namespaced=st.booleans(),
)
fleets = st.dictionaries(
    st.sampled_from(["karmada", "m1", "m2", "m3"]),
    st.lists(infos, max_size=5, unique_by=lambda info: info.group_version_resource),
)


@given(fleets, st.randoms(use_true_random=False))
def test_the_union_does_not_depend_on_who_answered_first(
    fleet: dict[str, list[ResourceInfo]], chance: random.Random
) -> None:
    shuffled = list(fleet.items())
    chance.shuffle(shuffled)

    assert merge(dict(shuffled)) == merge(fleet)


@given(fleets)
def test_every_resource_is_there_once_and_nothing_is_empty(
    fleet: dict[str, list[ResourceInfo]],
) -> None:
    groups: tuple[ServedGroup, ...] = merge(fleet).groups
    versions = [(group.name, each) for group in groups for each in group.versions]
    served = [info.group_version_resource for _, each in versions for info in each.resources]

    assert set(served) == {
        info.group_version_resource for listed in fleet.values() for info in listed
    }
    assert len(served) == len(set(served))
    assert all(each.resources for _, each in versions)


def test_a_members_custom_group_stands_behind_built_in_groups_that_it_lacks() -> None:
    """Whatever order clusters list their groups in: `kubectl get jobs` means those of batch."""
    api = merge(
        {
            "east": [resource("jobs", "a.example.com"), resource("works", "work.karmada.io")],
            "west": [resource("jobs", "batch"), resource("works", "b.example.com")],
        }
    )

    assert [group.name for group in api.groups] == [
        "batch",
        "work.karmada.io",
        "a.example.com",
        "b.example.com",
    ]
