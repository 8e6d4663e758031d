"""The table of built-in resources says what a real server's discovery says, and a little more."""

from typing import Any

import pytest
from tests.corpus import load_scenario

from clusterspace.builtins.resource_model import BuiltinResource, Persistence
from clusterspace.builtins.resources import (
    ApiGroup,
    all_groups,
    all_resources,
    find_kind,
    find_resource,
)
from clusterspace.kube.names import prefix_problems
from clusterspace.kube.resources import GroupVersion, Subresource


def resource_named(name: str, group: str = "", version: str = "v1") -> BuiltinResource:
    found = find_resource(group, version, name)
    assert found is not None
    return found


def recorded_bodies(scenario: str) -> list[Any]:
    return [step["response"]["body"] for step in load_scenario("apiserver", scenario)["steps"]]


def spoken(parent: GroupVersion, part: Subresource) -> tuple[str, str]:
    """Discovery leaves out a group and version that are the parent's."""
    kind = part.group_version_kind
    return ("", "") if kind.group_version == parent else (kind.group, kind.version)


def aggregated_part(parent: GroupVersion, part: Subresource) -> dict[str, Any]:
    group, version = spoken(parent, part)
    return {
        "subresource": part.name,
        "responseKind": {"group": group, "version": version, "kind": part.kind},
        "verbs": list(part.verbs),
    }


def aggregated(resource: BuiltinResource) -> dict[str, Any]:
    info = resource.info
    optional = {
        "shortNames": list(info.short_names),
        "categories": list(info.categories),
        "subresources": [aggregated_part(info.group_version, part) for part in info.subresources],
    }
    return {
        "resource": info.plural,
        "responseKind": {"group": "", "version": "", "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
        **{name: value for name, value in optional.items() if value},
    }


def legacy_entries(resource: BuiltinResource) -> list[dict[str, Any]]:
    info = resource.info
    optional = {
        "shortNames": list(info.short_names),
        "categories": list(info.categories),
        "storageVersionHash": resource.storage_version_hash,
    }
    whole = {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(info.verbs),
        **{name: value for name, value in optional.items() if value},
    }
    return [whole, *(legacy_part(resource, part) for part in info.subresources)]


def legacy_part(resource: BuiltinResource, part: Subresource) -> dict[str, Any]:
    group, version = spoken(resource.info.group_version, part)
    return {
        "name": f"{resource.info.plural}/{part.name}",
        "singularName": "",
        "namespaced": resource.info.namespaced,
        "kind": part.kind,
        "verbs": list(part.verbs),
        **({"group": group, "version": version} if version else {}),
    }


def resources_at(group_version: GroupVersion) -> list[BuiltinResource]:
    return [held for held in all_resources() if held.info.group_version == group_version]


def test_aggregated_discovery_is_what_a_real_server_recorded() -> None:
    recorded = [
        {
            "group": item["metadata"].get("name", ""),
            "versions": {
                served["version"]: served["resources"]
                for served in item["versions"]
                if served["version"].strip("v").isdigit()
            },
        }
        for body in recorded_bodies("discovery_aggregated")
        for item in body["items"]
    ]
    stable = [item for item in recorded if item["versions"]]

    assert stable == [
        {
            "group": group.name,
            "versions": {
                version: [
                    aggregated(held) for held in resources_at(GroupVersion(group.name, version))
                ]
                for version in group.versions
            },
        }
        for group in all_groups()
    ]
    assert [list(item["versions"]) for item in stable] == [
        list(group.versions) for group in all_groups()
    ]


def test_the_resources_of_each_version_are_what_a_real_server_recorded() -> None:
    lists = [
        body
        for body in recorded_bodies("discovery_legacy")
        if isinstance(body, dict) and body["kind"] == "APIResourceList"
    ]

    assert len(lists) > 10
    for body in lists:
        group, _, version = body["groupVersion"].rpartition("/")
        served = resources_at(GroupVersion(group, version))
        assert [entry for held in served for entry in legacy_entries(held)] == body["resources"]


def test_the_core_group_comes_first_and_the_newest_autoscaling_is_preferred() -> None:
    assert all_groups()[0] == ApiGroup("", ("v1",))
    autoscaling = next(group for group in all_groups() if group.name == "autoscaling")

    assert autoscaling.preferred_version == "v2"


def test_a_resource_is_found_by_url_and_by_kind() -> None:
    deployments = resource_named("deployments", "apps")

    assert deployments.info.kind == "Deployment"
    assert find_kind("apps", "v1", "Deployment") is deployments
    assert find_resource("apps", "v1beta1", "deployments") is None
    assert find_kind("", "v1", "Deployment") is None


def test_two_doors_to_the_same_objects_share_their_storage() -> None:
    events = resource_named("events")
    named_events = resource_named("events", "events.k8s.io")
    autoscalers = resource_named("horizontalpodautoscalers", "autoscaling", "v2")
    old_autoscalers = resource_named("horizontalpodautoscalers", "autoscaling", "v1")

    assert named_events.storage == events.storage
    assert old_autoscalers.storage == autoscalers.storage
    assert [held for held in all_resources() if held.needs_conversion] == [
        named_events,
        old_autoscalers,
    ]


def test_reviews_and_bindings_are_answered_and_never_kept() -> None:
    answered = {
        held.info.kind for held in all_resources() if held.persistence is Persistence.ANSWERED
    }

    assert answered == {
        "Binding",
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
        "TokenReview",
    }
    assert resource_named("componentstatuses").persistence is Persistence.COMPUTED


@pytest.mark.parametrize(
    ("plural", "group", "good", "bad"),
    [
        ("configmaps", "", "kube-root-ca.crt", "Bad_Name"),
        ("namespaces", "", "1-team", "a.b"),
        ("services", "", "web", "1web"),
        ("statefulsets", "apps", "db", "d.b"),
        ("roles", "rbac.authorization.k8s.io", "system:Reader", "a/b"),
        ("ipaddresses", "networking.k8s.io", "2001:db8::1", "010.0.0.1"),
    ],
)
def test_names_are_judged_by_their_kind(plural: str, group: str, good: str, bad: str) -> None:
    resource = resource_named(plural, group)

    assert resource.check_name(good) == ()
    assert resource.check_name(bad) != ()


def test_an_address_must_be_written_the_canonical_way() -> None:
    check = resource_named("ipaddresses", "networking.k8s.io").check_name

    assert check("2001:DB8::1") == ('must be in canonical form ("2001:db8::1")',)


def test_a_generated_name_may_end_in_a_dash() -> None:
    assert prefix_problems(resource_named("pods").check_name, "web-") == ()


@pytest.mark.parametrize(
    ("plural", "group", "kube_object", "field", "text"),
    [
        ("pods", "", {"spec": {"nodeName": "n1"}}, "spec.nodeName", "n1"),
        ("pods", "", {"spec": {"nodeName": "n1"}}, "spec.host", "n1"),
        ("pods", "", {}, "spec.hostNetwork", "false"),
        ("pods", "", {"spec": {"hostNetwork": True}}, "spec.hostNetwork", "true"),
        ("pods", "", {"status": {"podIPs": [{"ip": "10.0.0.1"}]}}, "status.podIPs", ""),
        ("nodes", "", {"spec": {"unschedulable": True}}, "spec.unschedulable", "true"),
        ("nodes", "", {}, "spec.unschedulable", "false"),
        ("namespaces", "", {"status": {"phase": "Active"}}, "status.phase", "Active"),
        ("secrets", "", {"type": "Opaque"}, "type", "Opaque"),
        ("services", "", {"spec": {"type": "ClusterIP"}}, "spec.type", "ClusterIP"),
        ("jobs", "batch", {"status": {"succeeded": 2}}, "status.successful", "2"),
        ("jobs", "batch", {}, "status.successful", "0"),
        ("replicationcontrollers", "", {"status": {"replicas": 0}}, "status.replicas", "0"),
        ("events", "", {"involvedObject": {"kind": "Pod"}}, "involvedObject.kind", "Pod"),
        ("events", "", {"source": {"component": "kubelet"}}, "source", "kubelet"),
        ("events", "", {"source": {}, "reportingComponent": "x"}, "source", "x"),
        ("events", "events.k8s.io", {"regarding": {"name": "p"}}, "regarding.name", "p"),
        ("leases", "coordination.k8s.io", {"metadata": {"name": "l"}}, "metadata.name", "l"),
    ],
)
def test_field_selectors_read_what_kubernetes_reads(
    plural: str, group: str, kube_object: dict[str, Any], field: str, text: str
) -> None:
    resource = resource_named(plural, group)

    assert resource.field_problem(field) == ""
    assert resource.field_values(kube_object)[field] == text


@pytest.mark.parametrize(
    ("plural", "group", "message"),
    [
        (
            "configmaps",
            "",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("pods", "", "field label not supported: data.x"),
        ("jobs", "batch", 'field label "data.x" not supported for Job'),
        (
            "resourceslices",
            "resource.k8s.io",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: data.x",
        ),
    ],
)
def test_a_field_nobody_may_select_by_is_refused_as_kubernetes_does(
    plural: str, group: str, message: str
) -> None:
    assert resource_named(plural, group).field_problem("data.x") == message


def test_status_has_a_door_of_its_own_where_discovery_says_so() -> None:
    assert resource_named("pods").has_status
    assert not resource_named("configmaps").has_status


def test_generations_are_kept_for_what_has_a_wish_and_an_outcome() -> None:
    assert resource_named("deployments", "apps").has_generation
    assert not resource_named("configmaps").has_generation
    assert not resource_named("services").has_generation
