"""Our OpenAPI documents beside those of a real kube-apiserver of the same minor version.

What differs on purpose is named in the constants; everything else must be equal.
"""

import asyncio
import ssl
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from tests.conformance.real_kubernetes import (
    TOKEN,
    RealKubernetes,
    running_kubernetes,
    wait_until,
)
from tests.unit.apiserver.openapi_subjects import WIDGET_SCHEMA, asking, operations_of, widgets

from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.openapi import OpenApi
from clusterspace.apiserver.openapi_documents import gnostic
from clusterspace.builtins.resources import all_groups

Document = Mapping[str, Any]

STREAMS = ("/attach", "/exec", "/log", "/portforward", "/proxy", "/proxy/{path}")
"""They reach into running pods: no objects, and a hub runs none."""

DEPRECATED = "/watch/"
"""Another way to say `?watch=true`: answered, not advertised."""

FOR_WATCH_PATHS = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
}
"""Definitions that a document may lack because it has no deprecated watch paths."""

NOT_SAID = {"description", "enum", "x-kubernetes-unions"}
"""What the packed facts leave out of a schema; defaults are compared where we have any."""

NOT_SERVED = {".well-known/openid-configuration", "openid/v1/jwks"}
"""Documents of Kubernetes about what a hub does not have."""

GROUP_VERSIONS = [
    f"apis/{group.name}/{version}" if group.name else f"api/{version}"
    for group in all_groups()
    for version in group.versions
]
SHOP = "apis/shop.example.com/v1"
WIDGET = "com.example.shop.v1.Widget"


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        running.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd())
        wait_until(lambda: SHOP in running.get("/openapi/v3")["paths"])
        yield running


@pytest.fixture(scope="module")
def theirs(kubernetes: RealKubernetes) -> Callable[[str], Document]:
    return lambda path: kubernetes.get(f"/openapi/v3/{path}".rstrip("/"))


@pytest.fixture(scope="module")
def ours() -> Callable[[str], Document]:
    catalog = Catalog(builtin_resources())
    catalog.replace_custom([widgets()])
    openapi = OpenApi(catalog)

    def read(path: str) -> Document:
        answered = openapi.answer(asking(f"/openapi/v3/{path}".rstrip("/")))
        assert answered is not None
        assert isinstance(answered.body, bytes)
        return msgspec.json.decode(answered.body)

    return read


def widget_crd() -> dict[str, Any]:
    info = widgets().info
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{info.group}"},
        "spec": {
            "group": info.group,
            "scope": "Namespaced",
            "names": {"plural": info.plural, "kind": info.kind},
            "versions": [
                {
                    "name": info.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                        },
                    },
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def their_swagger(kubernetes: RealKubernetes) -> Document:
    wait_until(lambda: WIDGET in kubernetes.get("/openapi/v2")["definitions"])
    return kubernetes.get("/openapi/v2")


@pytest.fixture(scope="module")
def our_swagger() -> Document:
    catalog = Catalog(builtin_resources())
    catalog.replace_custom([widgets()])
    answered = asyncio.run(OpenApi(catalog).answer_v2(asking("/openapi/v2")))
    assert isinstance(answered.body, bytes)
    return msgspec.json.decode(answered.body)


def test_version_2_defines_what_kubernetes_defines(
    their_swagger: Document, our_swagger: Document
) -> None:
    wanted, present = their_swagger["definitions"], our_swagger["definitions"]

    assert wanted.keys() - present.keys() <= FOR_WATCH_PATHS
    assert present.keys() <= wanted.keys()
    for name, schema in present.items():
        assert facts_of(schema, wanted[name]) == facts_of(wanted[name], schema), name


def test_version_2_offers_what_kubernetes_offers(
    their_swagger: Document, our_swagger: Document
) -> None:
    def named(document: Document) -> dict[tuple[str, str], Any]:
        return {
            (path, method): (
                operation["operationId"],
                operation["tags"],
                operation.get("x-kubernetes-action"),
                {code: each.get("schema") for code, each in operation["responses"].items()},
                {
                    parameter(document, each)
                    for place in (operation, document["paths"][path])
                    for each in place.get("parameters", ())
                },
            )
            for path, method, operation in operations_of(document)
            if DEPRECATED not in path
            if not path.endswith(STREAMS)
            if path.strip("/") not in NOT_SERVED
            if "shop.example.com" not in path
        }

    def parameter(document: Document, given: Any) -> tuple[Any, ...]:
        shared = given.get("$ref", "").removeprefix("#/parameters/")
        described = document["parameters"][shared] if shared else given
        schema = described.get("schema", {}).get("$ref")
        return described["name"], described["in"], described.get("type"), schema

    assert named(our_swagger) == named(their_swagger)


def test_version_2_is_written_as_kubernetes_writes_it(kubernetes: RealKubernetes) -> None:
    asked = urllib.request.Request(
        f"{kubernetes.url}/openapi/v2",
        headers={
            "Authorization": f"Bearer {TOKEN}",
            "Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        },
    )
    trust = ssl._create_unverified_context()
    with urllib.request.urlopen(asked, context=trust, timeout=30) as answered:
        theirs = answered.read()
    document: Any = kubernetes.get("/openapi/v2")

    ours = gnostic.document(
        document,
        [gnostic.named_path(*each) for each in sorted(document["paths"].items())],
        [gnostic.named_schema(*each) for each in sorted(document["definitions"].items())],
    )

    # Extensions are texts in YAML, where keys may stand in any order, and nothing has two forms.
    assert len(ours) == len(theirs)
    assert Counter(ours.replace(b"''", b'""')) == Counter(theirs)


def test_the_index_names_what_kubernetes_names(theirs: Any, ours: Any) -> None:
    of_custom_group = "apis/shop.example.com"

    assert ours("")["paths"].keys() - {of_custom_group} == theirs("")["paths"].keys() - NOT_SERVED


@pytest.mark.parametrize("path", [*GROUP_VERSIONS, "api", "apis", "apis/apps", "version"])
def test_definitions_say_what_kubernetes_says(path: str, theirs: Any, ours: Any) -> None:
    wanted = theirs(path)["components"]["schemas"]
    present = ours(path)["components"]["schemas"]

    assert wanted.keys() - present.keys() <= FOR_WATCH_PATHS
    assert present.keys() <= wanted.keys()
    for name, schema in present.items():
        assert facts_of(schema, wanted[name]) == facts_of(wanted[name], schema), name


@pytest.mark.parametrize("path", [*GROUP_VERSIONS, "api", "apis", "apis/apps", "version"])
def test_paths_offer_what_kubernetes_offers(path: str, theirs: Any, ours: Any) -> None:
    assert offered_by(ours(path)) == offered_by(theirs(path))


def test_a_custom_kind_is_defined_as_kubernetes_defines_it(theirs: Any, ours: Any) -> None:
    wanted = theirs(SHOP)["components"]["schemas"]
    present = ours(SHOP)["components"]["schemas"]

    for name in ("com.example.shop.v1.Widget", "com.example.shop.v1.WidgetList"):
        assert facts_of(present[name], wanted[name]) == facts_of(wanted[name], present[name])
    only_for_discovery = {
        "io.k8s.apimachinery.pkg.apis.meta.v1.APIResource",
        "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    }
    assert present.keys() - wanted.keys() == only_for_discovery
    assert wanted.keys() <= present.keys()


def test_a_custom_resource_offers_what_kubernetes_offers(theirs: Any, ours: Any) -> None:
    # Kubernetes says that the scale of a custom resource speaks the custom kind. It speaks Scale.
    def named(document: Document) -> dict[tuple[str, str], Any]:
        return {
            (path, method): (
                operation["operationId"],
                operation["tags"],
                operation["x-kubernetes-action"],
                path.endswith("/scale") or operation["x-kubernetes-group-version-kind"],
            )
            for path, method, operation in operations_of(document)
            if path != f"/{SHOP}/"
        }

    assert named(ours(SHOP)) == named(theirs(SHOP))


def facts_of(schema: Any, other: Any) -> Any:
    """Return what a schema says that both could say; a lone reference needs no wrapping."""
    if not isinstance(schema, dict):
        return schema
    beside: Any = other if isinstance(other, dict) else {}
    dropped = NOT_SAID if "default" in beside else NOT_SAID | {"default"}
    kept = {key: value for key, value in schema.items() if key not in dropped}
    if kept.keys() == {"allOf"} and len(kept["allOf"]) == 1:
        return kept["allOf"][0]
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = facts_of(kept[key], beside.get(key))
    if "properties" in kept:
        known = beside.get("properties", {})
        kept["properties"] = {
            name: facts_of(held, known.get(name)) for name, held in kept["properties"].items()
        }
    return kept


def offered_by(document: Document) -> dict[tuple[str, str], Any]:
    """Return every operation without prose, and without what differs on purpose."""
    return {
        (path, method): _offer(document["paths"][path], operation)
        for path, method, operation in operations_of(document)
        if DEPRECATED not in path and not path.endswith(STREAMS)
    }


def _offer(item: Mapping[str, Any], operation: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
    body = operation.get("requestBody", {})
    named = {
        key: operation.get(key)
        for key in ("operationId", "tags", "x-kubernetes-action", "x-kubernetes-group-version-kind")
    }
    return {
        **named,
        "parameters": {(each["name"], each["in"], each["schema"]["type"]) for each in parameters},
        "takes": {kind: held["schema"] for kind, held in body.get("content", {}).items()},
        "needs a body": body.get("required", False),
        "answers": {
            code: answer.get("content", {}).get("application/json")
            for code, answer in operation["responses"].items()
        },
    }
