from clusterspace.client.discovery import (
    read_aggregated,
    read_group_versions,
    read_resource_list,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, GroupVersionKind, GroupVersionResource

AGGREGATED: Object = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": "apps"},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": "deployments",
                            "responseKind": {
                                "group": "apps",
                                "version": "v1",
                                "kind": "Deployment",
                            },
                            "scope": "Namespaced",
                            "singularResource": "deployment",
                            "verbs": ["get", "watch"],
                            "shortNames": ["deploy"],
                            "subresources": [
                                {
                                    "subresource": "scale",
                                    "responseKind": {
                                        "group": "autoscaling",
                                        "version": "v1",
                                        "kind": "Scale",
                                    },
                                    "verbs": ["get"],
                                }
                            ],
                        }
                    ],
                }
            ],
        },
        {
            "metadata": {"name": "metrics.k8s.io"},
            "versions": [{"version": "v1beta1", "freshness": "Stale"}],
        },
    ],
}

LEGACY: Object = {
    "kind": "APIResourceList",
    "groupVersion": "apps/v1",
    "resources": [
        {
            "name": "deployments",
            "singularName": "deployment",
            "namespaced": True,
            "kind": "Deployment",
            "verbs": ["get", "watch"],
            "shortNames": ["deploy"],
        },
        {
            "name": "deployments/scale",
            "namespaced": True,
            "group": "autoscaling",
            "version": "v1",
            "kind": "Scale",
            "verbs": ["get"],
        },
    ],
}


def test_both_forms_of_discovery_tell_the_same():
    aggregated = read_aggregated([AGGREGATED]).resources

    assert aggregated == read_resource_list(LEGACY, GroupVersion("apps", "v1"))
    assert aggregated[0].find_subresource("scale") is not None


def test_a_version_the_server_could_not_ask_for_is_failed_and_not_gone():
    served = read_aggregated([AGGREGATED])

    assert served.failed == (GroupVersion("metrics.k8s.io", "v1beta1"),)


def test_a_resource_is_found_by_either_name():
    served = read_aggregated([AGGREGATED])
    by_resource = served.find_resource(GroupVersionResource("apps", "v1", "deployments"))

    assert by_resource is served.resources[0]
    assert served.find_kind(GroupVersionKind("apps", "v1", "Deployment")) is by_resource
    assert served.find_kind(GroupVersionKind("apps", "v1", "Gear")) is None


def test_old_servers_list_their_groups():
    core = {"kind": "APIVersions", "versions": ["v1"]}
    named = {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}

    assert read_group_versions(core) == (GroupVersion("", "v1"),)
    assert read_group_versions(named) == (GroupVersion("apps", "v1"),)


def test_a_list_of_any_length_is_read_in_one_pass():
    many = 30_000
    listed = [{"name": f"r{n}", "kind": "R"} for n in range(many)]
    listed += [{"name": f"r{n}/status", "kind": "R"} for n in range(many)]

    found = read_resource_list({"resources": listed}, GroupVersion("apps", "v1"))

    assert len(found) == many
    assert {tuple(part.name for part in each.subresources) for each in found} == {("status",)}
