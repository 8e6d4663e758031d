"""What is served: found by path, by kind, and changed in one step."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, PODS

from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.kube.resources import GroupResource


def custom(plural: str, group: str = "x.io", version: str = "v1") -> Served:
    info = replace(
        CONFIG_MAPS.info, group=group, version=version, plural=plural, kind=plural.title()
    )
    return replace(CONFIG_MAPS, info=info, storage=GroupResource(group, plural), is_custom=True)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(builtin_resources())


def test_a_resource_is_found_by_its_path_and_by_its_kind(catalog: Catalog) -> None:
    found = catalog.find("apps", "v1", "deployments")

    assert found is not None
    assert found.info.kind == "Deployment"
    assert catalog.find_kind("apps", "Deployment") is found
    assert catalog.find("apps", "v1beta1", "deployments") is None
    assert catalog.find("", "v1", "deployments") is None
    assert catalog.find_kind("", "Deployment") is None


def test_a_version_that_is_stored_is_got_whichever_is_served(catalog: Catalog) -> None:
    assert catalog.get_storage("", "pods").info.kind == "Pod"
    with pytest.raises(KeyError, match=r"things\.x\.io"):
        catalog.get_storage("x.io", "things")


def test_custom_resources_come_and_go_together(catalog: Catalog) -> None:
    before = catalog.revision
    catalog.replace_custom([custom("foos"), custom("bars")])
    assert catalog.find("x.io", "v1", "foos") is not None

    catalog.replace_custom([custom("bars")])

    assert catalog.find("x.io", "v1", "foos") is None
    assert catalog.find("x.io", "v1", "bars") is not None
    assert catalog.revision == before + 2


def test_a_custom_resource_never_hides_a_built_in_one(catalog: Catalog) -> None:
    catalog.replace_custom([custom("pods", group="")])

    found = catalog.find("", "v1", "pods")

    assert found is not None
    assert not found.is_custom


def test_keys_of_resources_with_like_names_never_cover_each_other() -> None:
    foo, foobar = custom("foo"), custom("foobar")

    assert not foobar.key("default", "a").startswith(foo.prefix())
    assert not foo.key("team-a", "x").startswith(foo.prefix("team"))
    assert foo.key("team", "x").startswith(foo.prefix("team"))
    assert foo.prefix("team").startswith(foo.prefix())


def test_every_storage_key_is_that_of_one_resource(catalog: Catalog) -> None:
    """Two resources share a prefix only if they are two views of the same objects."""
    prefixes: dict[str, str] = {}
    for served in catalog.all():
        kind = prefixes.setdefault(served.prefix(), served.info.kind)
        assert kind == served.info.kind
    roots = sorted(prefixes)
    for first, second in pairwise(roots):
        assert not second.startswith(first)


def test_a_cluster_scoped_object_has_no_namespace_in_its_key(catalog: Catalog) -> None:
    nodes = catalog.get_storage("", "nodes")

    assert nodes.key("ignored", "n1") == nodes.key("", "n1") == nodes.prefix() + "n1"
    assert PODS.key("default", "p") == PODS.prefix("default") + "p"


def test_a_name_means_the_built_in_resource_before_karmadas_before_any_other(
    catalog: Catalog,
) -> None:
    fleet, karmada = "placement.kubernetes-fleet.io", "work.karmada.io"
    catalog.replace_custom(
        [custom("cronjobs", "a.example.com"), custom("works", fleet), custom("works", karmada)]
    )

    def groups_with(plural: str) -> list[str]:
        return [each.info.group for each in catalog.all() if each.info.plural == plural]

    assert groups_with("cronjobs") == ["batch", "a.example.com"]
    assert groups_with("works") == [karmada, fleet]
