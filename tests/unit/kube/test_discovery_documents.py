"""What a server tells of its resources, to the letter of a kube-apiserver."""

from typing import Any

import pytest
from tests.corpus import load_scenario

from clusterspace.client.discovery import read_aggregated, read_resource_list
from clusterspace.kube.discovery_documents import (
    ServedGroup,
    ServedVersion,
    aggregated,
    core_versions,
    group_document,
    group_list,
    resource_list,
)
from clusterspace.kube.resources import ResourceInfo, parse_api_version

PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True, verbs=("get", "list"))
ROLES = ResourceInfo("rbac", "v1", "Role", "roles", "role", namespaced=True, verbs=("get",))
CORE = ServedGroup("", (ServedVersion("v1", (PODS,)),))
RBAC = ServedGroup("rbac", (ServedVersion("v1", (ROLES,)), ServedVersion("v1beta1", (ROLES,))))


def recorded(scenario: str, path: str) -> dict[str, Any]:
    steps = load_scenario("apiserver", scenario)["steps"]
    return next(step["response"]["body"] for step in steps if step["request"]["path"] == path)


def grouped(resources: tuple[ResourceInfo, ...]) -> list[ServedGroup]:
    held: dict[str, dict[str, list[ResourceInfo]]] = {}
    for info in resources:
        held.setdefault(info.group, {}).setdefault(info.version, []).append(info)
    return [
        ServedGroup(
            name, tuple(ServedVersion(each, tuple(infos)) for each, infos in versions.items())
        )
        for name, versions in held.items()
    ]


def spelled_out(value: Any, group: str = "", version: str = "") -> Any:
    """Return the document with the groups and versions a real server leaves to be understood."""
    if isinstance(value, list):
        return [spelled_out(each, group, version) for each in value]
    if not isinstance(value, dict):
        return value
    group = value.get("metadata", {}).get("name", group)
    version = value.get("version") or version
    if set(value) == {"group", "version", "kind"}:
        return {"group": value["group"] or group, "version": version, "kind": value["kind"]}
    return {key: spelled_out(each, group, version) for key, each in value.items()}


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_the_aggregated_document_is_that_of_a_real_server(path: str) -> None:
    document = recorded("discovery_aggregated", path)

    ours = aggregated(grouped(read_aggregated([document]).resources), "v2")

    assert ours == spelled_out(document)


@pytest.mark.parametrize("path", ["/api/v1", "/apis/apps/v1", "/apis/policy/v1"])
def test_a_resource_list_is_that_of_a_real_server(path: str) -> None:
    document = recorded("discovery_legacy", path)
    served = parse_api_version(document["groupVersion"])
    resources = read_resource_list(document, served)
    told = [
        {key: value for key, value in each.items() if key != "storageVersionHash"}
        for each in document["resources"]
    ]

    ours = resource_list(served.group, ServedVersion(served.version, resources))

    by_name = sorted(ours.pop("resources"), key=lambda each: each["name"])
    assert by_name == sorted(told, key=lambda each: each["name"])
    assert ours == {key: value for key, value in document.items() if key != "resources"}


def test_groups_are_listed_with_the_preferred_version_first() -> None:
    body = group_list([CORE, RBAC])

    assert [group["name"] for group in body["groups"]] == ["rbac"]
    assert body["groups"][0]["preferredVersion"] == {"groupVersion": "rbac/v1", "version": "v1"}
    assert [each["version"] for each in body["groups"][0]["versions"]] == ["v1", "v1beta1"]


def test_one_group_says_what_the_list_says() -> None:
    [listed] = group_list([RBAC])["groups"]

    assert group_document(RBAC) == {"kind": "APIGroup", "apiVersion": "v1", **listed}


def test_the_core_group_is_told_with_the_address_of_the_server() -> None:
    assert core_versions([CORE, RBAC], "fleet:443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "fleet:443"}],
    }


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_the_client_chooses_the_name_of_the_aggregated_format(version: str) -> None:
    assert aggregated([CORE], version)["apiVersion"] == f"apidiscovery.k8s.io/{version}"
