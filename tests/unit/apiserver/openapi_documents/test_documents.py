from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apiserver.openapi_subjects import (
    all_builtins,
    builtin,
    operations_of,
    problems_of,
    widgets,
)

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents.documents import (
    group_version_document,
    root_document,
    roots_above,
)
from clusterspace.kube.resources import GroupVersion

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
STRATEGIC = "application/strategic-merge-patch+json"


def document_of(*resources: Served) -> dict[str, Any]:
    return group_version_document(resources[0].info.group_version, resources)


def every_builtin_document() -> Iterator[Any]:
    held: dict[GroupVersion, list[Served]] = {}
    for served in all_builtins():
        held.setdefault(served.info.group_version, []).append(served)
    for group_version, together in held.items():
        yield pytest.param(together, id=str(group_version))


def query_parameters(operation: Mapping[str, Any]) -> list[str]:
    return [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]


@pytest.mark.parametrize("resources", list(every_builtin_document()))
def test_every_built_in_group_version_is_described_in_openapi_3(resources: list[Served]) -> None:
    document = document_of(*resources)

    assert problems_of(document) == []
    described = {
        operation["x-kubernetes-group-version-kind"]["kind"]
        for _, _, operation in operations_of(document)
        if "x-kubernetes-group-version-kind" in operation
    }
    assert described >= {served.info.kind for served in resources}


@pytest.mark.parametrize("root", roots_above([GroupVersion("", "v1"), GroupVersion("apps", "v1")]))
def test_every_root_is_described_in_openapi_3(root: Any) -> None:
    assert problems_of(root_document(root)) == []


def test_a_namespaced_resource_has_these_paths_and_methods() -> None:
    offered = {(path, method) for path, method, _ in operations_of(document_of(widgets()))}

    collection = "/apis/shop.example.com/v1/namespaces/{namespace}/widgets"
    one = f"{collection}/{{name}}"
    assert offered == {
        ("/apis/shop.example.com/v1/", "get"),
        ("/apis/shop.example.com/v1/widgets", "get"),
        *((collection, method) for method in ("get", "post", "delete")),
        *((one, method) for method in ("get", "put", "patch", "delete")),
        *((f"{one}/status", method) for method in ("get", "put", "patch")),
        *((f"{one}/scale", method) for method in ("get", "put", "patch")),
    }


def test_operations_are_called_as_client_generators_know_them() -> None:
    names = {each["operationId"] for _, _, each in operations_of(document_of(widgets()))}

    assert names >= {
        "getShopExampleComV1APIResources",
        "listShopExampleComV1WidgetForAllNamespaces",
        "deleteShopExampleComV1CollectionNamespacedWidget",
        "replaceShopExampleComV1NamespacedWidgetScale",
    }


def test_a_question_that_is_answered_at_once_can_only_be_posted() -> None:
    document = document_of(builtin("authorization.k8s.io", "v1", "localsubjectaccessreviews"))

    offered = {(path, method) for path, method, _ in operations_of(document)}

    reviews = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
    assert offered == {("/apis/authorization.k8s.io/v1/", "get"), (reviews, "post")}


def test_streams_of_running_pods_are_not_described() -> None:
    paths = document_of(builtin("", "v1", "pods"))["paths"]

    parts = {path.rpartition("/")[2] for path in paths if "/{name}/" in path}
    assert parts == {"binding", "ephemeralcontainers", "eviction", "resize", "status"}


@pytest.mark.parametrize("served", [builtin("apps", "v1", "deployments"), widgets()])
def test_kubectl_finds_out_that_a_patch_takes_field_validation(served: Served) -> None:
    kind = served.info.group_version_kind

    patches = [
        operation
        for _, method, operation in operations_of(document_of(served))
        if method == "patch"
        and operation["x-kubernetes-group-version-kind"]
        == {"group": kind.group, "version": kind.version, "kind": kind.kind}
    ]

    assert len(patches) == 2
    for patch in patches:
        assert query_parameters(patch) == ["dryRun", "fieldManager", "fieldValidation", "force"]


def test_only_built_in_kinds_take_strategic_merge_patches() -> None:
    def patch_types(served: Served) -> set[str]:
        return {
            media_type
            for _, method, operation in operations_of(document_of(served))
            if method == "patch"
            for media_type in operation["requestBody"]["content"]
        }

    others = patch_types(widgets())
    assert STRATEGIC not in others
    assert patch_types(builtin("apps", "v1", "deployments")) == {*others, STRATEGIC}


def test_a_subresource_speaks_its_own_kind() -> None:
    document = document_of(builtin("apps", "v1", "deployments"))
    scale = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]

    assert scale["get"]["x-kubernetes-group-version-kind"] == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
    }
    assert "io.k8s.api.autoscaling.v1.Scale" in document["components"]["schemas"]


def test_a_delete_answers_with_a_status_or_with_what_is_gone() -> None:
    def answered(served: Served) -> str:
        path = "/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}"
        deletion = document_of(served)["paths"][path]["delete"]
        return deletion["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]

    returning = replace(widgets(), returns_deleted=True)

    assert answered(widgets()) == f"#/components/schemas/{META}.Status"
    assert answered(returning) == "#/components/schemas/com.example.shop.v1.Widget"
