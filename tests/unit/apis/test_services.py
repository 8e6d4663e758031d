"""What may be exported of a Service, what it is called elsewhere, and which input is refused."""

from typing import Any

import pytest

from clusterspace.apis.services import (
    MOST_ENDPOINTS,
    MOST_SLICES,
    consumers_of,
    dispatched_slice_names,
    exposed_ports,
    find_report,
    imported_slice_names,
    multi_cluster_ingress_causes,
    multi_cluster_service_causes,
    providers_of,
    read_endpoints,
)
from clusterspace.apis.works import by_export
from clusterspace.kube.objects import Object


def a_slice(name: str = "web-abc", *addresses: str, **more: Any) -> Object:
    endpoints = [{"addresses": [each]} for each in addresses or ("10.0.0.1",)]
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    slice_ = {"metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints}
    return {**slice_, "ports": ports, **more}


def addresses_in(*slices: Any) -> list[str]:
    return [
        address
        for each in read_endpoints(slices).slices
        for endpoint in each["endpoints"]
        for address in endpoint["addresses"]
    ]


def test_addresses_and_ports_of_a_slice_are_exported() -> None:
    found = read_endpoints([a_slice("web-abc", "10.0.0.1", "10.0.0.2")])

    assert found.left_out == 0
    assert found.slices == (
        {
            "name": "web-abc",
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        },
    )


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "2001:db8::1",
        "metadata.google.internal",
        "",
        "10.0.0.1/8",
        "010.0.0.1",
    ],
)
def test_an_address_that_means_the_readers_own_network_is_left_out(address: str) -> None:
    found = read_endpoints([a_slice("web-abc", address, "10.0.0.2")])

    assert addresses_in(a_slice("web-abc", address, "10.0.0.2")) == ["10.0.0.2"]
    assert found.left_out == 1


@pytest.mark.parametrize(
    "address",
    [
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "fe80::1%eth0",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "64:ff9b::a9fe:a9fe",
        "fec0::1",
    ],
)
def test_so_is_one_of_the_other_family(address: str) -> None:
    both = a_slice("web-abc", address, "2001:4860::8", addressType="IPv6")

    assert addresses_in(both) == ["2001:4860::8"]


def test_a_name_instead_of_an_address_is_not_exported() -> None:
    by_name = a_slice("web-abc", "metadata.google.internal", addressType="FQDN")

    assert read_endpoints([by_name]).slices == ()


def test_nothing_but_addresses_ports_and_readiness_leaves_a_cluster() -> None:
    endpoint = {
        "addresses": ["10.0.0.1"],
        "conditions": {"ready": True, "serving": "yes", "other": True},
        "hostname": "web-0",
        "zone": "eu-1",
        "nodeName": "your-own-node",
        "targetRef": {"kind": "Secret", "name": "x"},
        "hints": {"forZones": [{"name": "everywhere"}]},
        "deprecatedTopology": {"a": "b"},
    }
    claims = {
        "name": "web-abc",
        "namespace": "kube-system",
        "labels": {"kubernetes.io/service-name": "kubernetes"},
        "annotations": {"endpointslice.karmada.io/provision-cluster": "east"},
    }

    (found,) = read_endpoints([a_slice(metadata=claims, endpoints=[endpoint])]).slices

    assert found.keys() == {"name", "addressType", "endpoints", "ports"}
    assert found["endpoints"] == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True},
            "hostname": "web-0",
            "zone": "eu-1",
        }
    ]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "text",
        [],
        {},
        {"metadata": "x"},
        {"metadata": {"name": "../etc"}, "addressType": "IPv4"},
        {"metadata": {"name": 7}, "addressType": "IPv4"},
        {"metadata": {"name": "a"}, "addressType": []},
        {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": "x", "ports": 3},
        {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": {}}, 3]},
        {"metadata": {"name": "a"}, "addressType": "IPv4", "ports": [{"port": True}, {"port": 0}]},
    ],
)
def test_nonsense_exports_no_endpoint(nonsense: Any) -> None:
    assert addresses_in(nonsense) == []
    assert all(each["ports"] == [] for each in read_endpoints([nonsense]).slices)


def test_thousands_of_slices_and_endpoints_are_cut_off() -> None:
    many = [a_slice(f"web-{number}") for number in range(5000)]
    large = a_slice(
        "web", *(f"10.1.{high}.{low}" for high in range(1, 11) for low in range(1, 251))
    )

    assert len(read_endpoints(many).slices) == MOST_SLICES
    assert read_endpoints(many).left_out == 5000 - MOST_SLICES
    assert len(addresses_in(large)) == MOST_ENDPOINTS
    assert len(addresses_in(large, *many)) == MOST_ENDPOINTS


def test_names_are_those_that_karmadas_users_know() -> None:
    assert imported_slice_names("west", "web-abc")[0] == "imported-west-web-abc"
    assert dispatched_slice_names("west", "web-abc")[0] == "west-web-abc"


def test_two_clusters_whose_names_run_together_have_slices_of_their_own() -> None:
    one, other = imported_slice_names("a-b", "x"), imported_slice_names("a", "b-x")

    assert one[0] == other[0]
    assert one[1] != other[1]


def test_no_name_is_too_long() -> None:
    for names in (imported_slice_names("west", "w" * 253), dispatched_slice_names("w", "x" * 253)):
        assert all(len(each) <= 253 for each in names)


def order(**status: Any) -> Object:
    manifest = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceExport",
        "metadata": {"name": "web", "namespace": "shop"},
    }
    identifier = {
        "group": "multicluster.x-k8s.io",
        "kind": "ServiceExport",
        "name": "web",
        "namespace": "shop",
        "ordinal": 0,
        "resource": "",
        "version": "v1alpha1",
    }
    entry = {"identifier": identifier, "status": status}
    return {
        "metadata": {"name": "web-1", "namespace": "karmada-es-west"},
        "spec": {"workload": {"manifests": [manifest]}},
        "status": {"manifestStatuses": [entry]},
    }


def test_a_cluster_that_said_nothing_is_not_one_without_endpoints() -> None:
    assert find_report(order()) is None
    assert find_report(order(endpointSlices="nonsense")) is None
    empty = find_report(order(endpointSlices=[]))
    assert empty is not None
    assert empty.slices == ()


def test_a_report_counts_only_for_what_was_asked() -> None:
    work = order(endpointSlices=[a_slice()])
    work["status"]["manifestStatuses"][0]["identifier"]["namespace"] = "kube-system"

    assert find_report(work) is None
    assert by_export(work) == ["ServiceExport shop/web"]


def wanted(**spec: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"types": ["CrossCluster"], **spec}}


def test_the_newest_field_that_names_clusters_counts() -> None:
    everywhere = ("a", "b", "c")

    assert providers_of(wanted(), everywhere) == {"a", "b", "c"}
    assert providers_of(wanted(providerClusters=[{"name": "b"}]), everywhere) == {"b"}
    old = wanted(serviceProvisionClusters=["a"], serviceConsumptionClusters=["c"])
    assert providers_of(old, everywhere) == {"a"}
    assert consumers_of(old, everywhere) == {"c"}
    oldest = wanted(range={"clusterNames": ["b"]})
    assert providers_of(oldest, everywhere) == consumers_of(oldest, everywhere) == {"b"}


def test_ports_are_found_by_name_or_by_number() -> None:
    service = {"spec": {"ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 81}]}}

    assert exposed_ports(wanted(), service) is None
    assert exposed_ports(wanted(ports=[{"name": "admin", "port": 81}]), service) == {"admin"}
    assert exposed_ports(wanted(ports=[{"port": 80}]), service) == {"http"}


@pytest.mark.parametrize(
    ("service", "field"),
    [
        (wanted(types=["Nonsense"]), "spec.types[0]"),
        (wanted(types=["CrossCluster", "LoadBalancer"]), "spec.types"),
        (wanted(types=[]), "spec.types"),
        (wanted(ports=[{"port": 0}]), "spec.ports[0].port"),
        (wanted(ports=[{"port": 1, "name": "A"}]), "spec.ports[0].name"),
        (wanted(ports=[{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]), "spec.ports[1].name"),
        (wanted(providerClusters=[{"name": "A B"}]), "spec.providerClusters[0].name"),
        (wanted(consumerClusters=[{"name": "x" * 64}]), "spec.consumerClusters[0].name"),
        (wanted(serviceProvisionClusters=["_"]), "spec.serviceProvisionClusters[0]"),
        (wanted(range={"clusterNames": ["_"]}), "spec.range.clusterNames[0]"),
        ({**wanted(), "metadata": {"name": "1-web"}}, "metadata.name"),
    ],
)
def test_a_multi_cluster_service_that_makes_no_sense_is_refused_by_its_field(
    service: Object, field: str
) -> None:
    assert field in {each.field for each in multi_cluster_service_causes(service, None)}


def test_the_types_of_a_multi_cluster_service_stay() -> None:
    found = list(multi_cluster_service_causes(wanted(types=["LoadBalancer"]), wanted()))

    assert [(each.field, "immutable" in each.message) for each in found] == [("spec.types", True)]
    assert not list(multi_cluster_service_causes(wanted(), wanted()))


def test_a_multi_cluster_ingress_is_checked_as_an_ingress() -> None:
    found = list(multi_cluster_ingress_causes({"spec": {"rules": [{"host": "10.0.0.1"}]}}, None))

    assert "spec.rules[0].host" in {each.field for each in found}
