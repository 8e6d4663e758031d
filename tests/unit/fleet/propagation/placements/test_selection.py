"""What is placed of an object, and which objects never are."""

from typing import Any

import pytest

from clusterspace.apis.policies import ResourceSelector
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.bindings import Claim, with_claim
from clusterspace.fleet.propagation.placements.selection import (
    Selection,
    is_kept_home,
    manifest_of,
    may_be_placed,
    read_selectors,
    select,
    still_means,
)
from clusterspace.fleet.propagation.templates import TemplateRequest
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind, ResourceInfo
from clusterspace.testing.builders import config_map, namespace, pod


@pytest.mark.parametrize(
    ("namespace", "is_home"),
    [
        ("default", True),
        ("fleet-system", True),
        ("kube-system", True),
        ("karmada-es-west", True),
        ("app", False),
    ],
)
def test_namespaces_of_the_hub_are_never_placed(namespace: str, is_home: bool) -> None:
    assert is_kept_home(namespace) is is_home


@pytest.mark.parametrize(
    ("template", "is_placed"),
    [
        (config_map("a"), True),
        (config_map("kube-root-ca.crt"), False),
        (config_map("a", deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (pod("a"), False),
        ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, False),
        (
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {"name": "a"},
            },
            False,
        ),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "a", "ownerReferences": [{"kind": "Deployment"}]},
            },
            False,
        ),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}}, True),
        (
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "a",
                    "labels": {
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller"
                    },
                },
            },
            False,
        ),
    ],
)
def test_what_clusters_make_by_themselves_is_never_placed(
    template: Object, is_placed: bool
) -> None:
    assert may_be_placed(template) is is_placed


def test_what_is_the_hubs_stays_there() -> None:
    noted = config_map(
        "a",
        {"v": "1"},
        uid="1",
        resourceVersion="5",
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    )

    assert manifest_of(with_claim(noted, Claim("id", "pp", "default"))) == config_map(
        "a", {"v": "1"}
    )


def test_each_cluster_gives_its_own_ports_and_addresses() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {
            "clusterIP": "10.0.0.1",
            "healthCheckNodePort": 30001,
            "ports": [{"port": 80, "nodePort": 30000}],
        },
    }

    assert manifest_of(service)["spec"] == {"ports": [{"port": 80}]}


INFOS = {
    GroupVersionKind("", "v1", kind): ResourceInfo(
        "", "v1", kind, plural, "", namespaced=is_namespaced, verbs=()
    )
    for kind, plural, is_namespaced in (
        ("Namespace", "namespaces", False),
        ("ConfigMap", "configmaps", True),
        ("Endpoints", "endpoints", True),
        ("Service", "services", True),
        ("PersistentVolume", "persistentvolumes", False),
    )
}


class Book:
    """Objects of a hub."""

    def __init__(self, *objects: Object) -> None:
        self._objects = {self._place(each): each for each in objects}

    def _place(self, made: Object) -> ResourcePath:
        info = INFOS[GroupVersionKind.of(made["apiVersion"], made["kind"])]
        return ResourcePath(info.group_version_resource, namespace_of(made), name_of(made))

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        return INFOS.get(kind)

    def find_at(self, path: ResourcePath) -> Object | None:
        return self._objects.get(path)

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        return self.find_at(ResourcePath(INFOS[kind].group_version_resource, namespace, name))

    def selected_by(self, selector: ResourceSelector, namespace: str = "") -> list[TemplateRequest]:
        wanted = INFOS[GroupVersionKind.of(selector.api_version, selector.kind)]
        return [
            self._request(place)
            for place in self._objects
            if place.resource == wanted.group_version_resource
            and selector.name in ("", place.name)
            and selector.namespace in ("", place.namespace)
        ]

    def within(self, namespace: str) -> list[TemplateRequest]:
        return [self._request(place) for place in self._objects if place.namespace == namespace]

    def _request(self, place: ResourcePath) -> TemplateRequest:
        return TemplateRequest(place.name, place.namespace, resource=place.resource)


def plain(kind: str, name: str, within: str = "", **labels: str) -> Object:
    metadata: Object = {"name": name, "labels": labels}
    if within:
        metadata["namespace"] = within
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def selecting(*selectors: Object) -> Object:
    whole = [{"group": "", "version": "v1", "kind": "Namespace", **each} for each in selectors]
    return {"spec": {"resourceSelectors": whole}}


def chosen(book: Book, *selectors: Object) -> Selection:
    return select(read_selectors(selecting(*selectors)), book)


def names(selection: Selection) -> list[str]:
    return [f"{each['kind']}/{name_of(each)}" for each in selection.templates]


APP = Book(
    namespace("app"),
    namespace("other"),
    config_map("b", namespace="app"),
    config_map("a", namespace="app"),
    config_map("c", namespace="other"),
)


def test_a_namespace_takes_its_content_along() -> None:
    selection = chosen(APP, {"name": "app"})

    assert names(selection) == ["Namespace/app", "ConfigMap/a", "ConfigMap/b"]
    assert selection.namespaces == {"app"}


def test_a_namespace_alone_stays_without_its_content() -> None:
    selection = chosen(APP, {"name": "app", "selectionScope": "NamespaceOnly"})

    assert names(selection) == ["Namespace/app"]
    assert selection.namespaces == frozenset()


def test_part_of_a_namespace_stays_within_that_namespace() -> None:
    part = {"name": "app", "selectionScope": "NamespaceWithResourceSelectors"}

    assert names(chosen(APP, part, {"kind": "ConfigMap"})) == [
        "Namespace/app", "ConfigMap/a", "ConfigMap/b",
    ]  # fmt: skip


def test_labels_select_some_and_nothing_selects_all() -> None:
    volumes = Book(plain("PersistentVolume", "x", team="a"), plain("PersistentVolume", "y"))

    some = {"kind": "PersistentVolume", "labelSelector": {"matchLabels": {"team": "a"}}}
    assert names(chosen(volumes, some)) == ["PersistentVolume/x"]
    assert len(names(chosen(volumes, {"kind": "PersistentVolume"}))) == 2


def test_an_object_that_is_not_there_is_no_problem() -> None:
    assert chosen(APP, {"name": "missing"}) == Selection()


def test_namespaces_of_the_hub_are_passed_over_when_not_named() -> None:
    book = Book(namespace("app"), namespace("kube-system"), namespace("default"))

    assert names(chosen(book, {})) == ["Namespace/app"]


def test_endpoints_that_a_service_brings_about_stay_where_they_are() -> None:
    book = Book(
        namespace("app"),
        plain("Service", "web", "app"),
        plain("Endpoints", "web", "app"),
        plain("Endpoints", "by-hand", "app"),
    )

    assert names(chosen(book, {"name": "app"})) == [
        "Namespace/app", "Endpoints/by-hand", "Service/web",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ({"kind": "Rocket"}, "the hub serves no Rocket of v1"),
        ({"kind": "ConfigMap"}, "ConfigMap is namespaced: select its namespace instead"),
        ({"name": "default"}, "namespace default belongs to the hub and is never placed"),
    ],
)
def test_what_cannot_be_selected_is_said(selector: Any, problem: str) -> None:
    assert chosen(APP, selector).problems == (problem,)


def test_an_object_selected_twice_is_a_problem() -> None:
    twice = chosen(APP, {"name": "app", "selectionScope": "NamespaceOnly"}, {"name": "app"})

    assert twice.problems == ("Namespace app is selected more than once",)


def test_labels_that_cannot_be_read_name_their_place() -> None:
    bad = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Nearby"}]}}

    with pytest.raises(MalformedSelector, match=r"spec.resourceSelectors\[0\].labelSelector"):
        read_selectors(selecting(bad))


def test_an_object_that_a_cache_missed_is_still_meant() -> None:
    selectors = read_selectors(selecting({"name": "app"}))
    selection = select(selectors, APP)

    assert still_means(selectors, config_map("new", namespace="app"), selection)
    assert not still_means(selectors, config_map("new", namespace="other"), selection)
    leaving = config_map("new", namespace="app", deletionTimestamp="2026-01-01T00:00:00Z")
    assert not still_means(selectors, leaving, selection)
