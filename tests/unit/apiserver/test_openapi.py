from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.unit.apiserver.openapi_subjects import (
    WIDGET_SCHEMA,
    asking,
    builtin,
    header,
    problems_of,
    widgets,
)

from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.openapi import OpenApi
from clusterspace.apiserver.openapi_documents.names import OWN_FIELDS
from clusterspace.errors import NotAcceptable

PROTOBUF = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"


def small_catalog() -> Catalog:
    return Catalog([builtin("", "v1", "configmaps"), builtin("apps", "v1", "deployments")])


def read_index(openapi: OpenApi) -> dict[str, str]:
    answered = openapi.answer(asking("/openapi/v3"))
    assert answered is not None
    paths = msgspec.json.decode(bytes_of(answered.body))["paths"]
    return {path: entry["serverRelativeURL"] for path, entry in paths.items()}


def read_document(openapi: OpenApi, target: str) -> dict[str, Any]:
    answered = openapi.answer(asking(target))
    assert answered is not None
    assert answered.status == 200
    return msgspec.json.decode(bytes_of(answered.body))


def bytes_of(body: Any) -> bytes:
    assert isinstance(body, bytes)
    return body


def test_the_index_names_every_group_version_and_the_roots_above_them() -> None:
    index = read_index(OpenApi(small_catalog()))

    assert list(index) == ["api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version"]


def test_every_address_of_the_index_leads_to_a_document() -> None:
    openapi = OpenApi(small_catalog())

    for url in read_index(openapi).values():
        assert problems_of(read_document(openapi, url)) == []


def test_a_document_with_the_right_hash_may_be_kept_for_good() -> None:
    openapi = OpenApi(small_catalog())
    url = read_index(openapi)["apis/apps/v1"]

    answered = openapi.answer(asking(f"{url}&timeout=32s", accept="application/json"))

    assert header(answered, "Cache-Control") == "public, immutable, max-age=31536000"
    assert header(answered, "Content-Type") == "application/json"
    assert header(answered, "Vary") == "Accept"
    assert header(answered, "ETag") == f'"{url.partition("=")[2]}"'


def test_a_document_without_a_hash_is_asked_for_again_each_time() -> None:
    answered = OpenApi(small_catalog()).answer(asking("/openapi/v3/apis/apps/v1"))

    assert header(answered, "Cache-Control") == "no-cache, private"


def test_an_old_hash_leads_to_the_present_one() -> None:
    openapi = OpenApi(small_catalog())

    answered = openapi.answer(asking("/openapi/v3/apis/apps/v1?hash=0BAD"))

    assert answered is not None
    assert (answered.status, answered.body) == (301, b"")
    assert header(answered, "Location") == read_index(openapi)["apis/apps/v1"]
    assert header(answered, "Cache-Control") == "no-cache, private"


@pytest.mark.parametrize("target", ["/openapi/v3", "/openapi/v3/apis/apps/v1"])
def test_what_a_client_has_is_not_sent_again(target: str) -> None:
    openapi = OpenApi(small_catalog())
    tag = header(openapi.answer(asking(target)), "ETag")

    again = openapi.answer(asking(target, if_none_match=f'"other", W/{tag}'))
    other = openapi.answer(asking(target, if_none_match='"other"'))

    assert again is not None
    assert other is not None
    assert (again.status, again.body, other.status) == (304, b"", 200)
    assert header(again, "ETag") == tag


@pytest.mark.parametrize("accept", [PROTOBUF, "text/plain"])
def test_a_client_that_takes_no_json_is_refused(accept: str) -> None:
    openapi = OpenApi(small_catalog())

    with pytest.raises(NotAcceptable, match="application/json"):
        openapi.answer(asking("/openapi/v3/apis/apps/v1", accept=accept))


@pytest.mark.parametrize("accept", ["", "*/*", f"{PROTOBUF}, application/json;q=0.5"])
def test_a_client_that_takes_json_among_others_gets_it(accept: str) -> None:
    answered = OpenApi(small_catalog()).answer(asking("/openapi/v3/api/v1", accept=accept))

    assert header(answered, "Content-Type") == "application/json"


@pytest.mark.parametrize(
    "target",
    [
        "/openapi",
        "/openapi/v2",
        "/openapi/v3/apis/nobody.example.com/v1",
        "/openapi/v3/apis/apps/v2",
        "/openapi/v3/openapi/v3/api/v1",
        "/openapi/v3/api/v1/pods",
    ],
)
def test_there_is_nothing_at_other_addresses(target: str) -> None:
    assert OpenApi(small_catalog()).answer(asking(target)) is None


def test_a_custom_resource_comes_and_goes_with_its_definition() -> None:
    catalog = small_catalog()
    openapi = OpenApi(catalog)
    before = read_index(openapi)

    catalog.replace_custom([widgets()])
    during = read_index(openapi)
    catalog.replace_custom([])

    assert during.keys() - before.keys() == {
        "apis/shop.example.com",
        "apis/shop.example.com/v1",
    }
    assert read_index(openapi) == before


def test_a_changed_definition_changes_only_its_own_address() -> None:
    catalog = small_catalog()
    openapi = OpenApi(catalog)
    catalog.replace_custom([widgets()])
    before = read_index(openapi)

    catalog.replace_custom([widgets({**WIDGET_SCHEMA, "required": []})])
    after = read_index(openapi)

    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"apis/shop.example.com/v1"}
    document = read_document(openapi, after["apis/shop.example.com/v1"])
    assert document["components"]["schemas"]["com.example.shop.v1.Widget"]["required"] == []


def test_hashes_are_the_same_after_a_restart() -> None:
    first, second = small_catalog(), small_catalog()
    first.replace_custom([])
    first.replace_custom([widgets()])
    second.replace_custom([widgets()])

    assert read_index(OpenApi(first)) == read_index(OpenApi(second))


def test_the_hash_of_a_custom_schema_does_not_depend_on_the_order_of_its_fields() -> None:
    turned = dict(reversed(WIDGET_SCHEMA.items()))
    first, second = small_catalog(), small_catalog()
    first.replace_custom([widgets()])
    second.replace_custom([widgets(turned)])

    assert read_index(OpenApi(first)) == read_index(OpenApi(second))


# -- version 2 -------------------------------------------------------------------------------------

SWAGGER = "/openapi/v2"
GNOSTIC = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


async def read_swagger(openapi: OpenApi) -> Any:
    answered = await openapi.answer_v2(asking(SWAGGER))
    assert isinstance(answered.body, bytes)
    return msgspec.json.decode(answered.body)


async def test_version_2_describes_everything_served() -> None:
    catalog = small_catalog()
    openapi = OpenApi(catalog)
    catalog.replace_custom([widgets()])

    document = await read_swagger(openapi)

    assert document["swagger"] == "2.0"
    assert "/apis/apps/v1/namespaces/{namespace}/deployments/{name}" in document["paths"]
    widget = document["definitions"]["com.example.shop.v1.Widget"]
    assert widget["properties"]["spec"]["properties"]["replicas"] == {
        "type": "integer",
        "minimum": 0,
    }
    catalog.replace_custom([])
    assert "com.example.shop.v1.Widget" not in (await read_swagger(openapi))["definitions"]


async def test_every_reference_of_version_2_leads_somewhere() -> None:
    catalog = small_catalog()
    catalog.replace_custom([widgets()])
    document = await read_swagger(OpenApi(catalog))

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    for reference in set(references(document)):
        _, section, name = reference.split("/", 2)
        assert name in document[section], reference


@pytest.mark.parametrize(
    ("schema", "published"),
    [
        ({"type": "string", "nullable": True}, {}),
        ({"type": "object", "nullable": True, "properties": {"b": {}}}, {}),
        ({"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": {}}, {
            "x-kubernetes-preserve-unknown-fields": True}),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, {
            "x-kubernetes-int-or-string": True}),
        ({"type": "object", "required": ["b", "c"], "properties": {
            "b": {"type": "string", "nullable": True}, "c": {"type": "string"}}}, {
            "type": "object", "required": ["c"], "properties": {"b": {}, "c": {"type": "string"}}}),
        ({"type": "integer", "minimum": 0, "default": 1, "nullable": False}, {
            "type": "integer", "minimum": 0}),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {
                "apiVersion": {"type": "string", "description": OWN_FIELDS["apiVersion"]},
                "kind": {"type": "string", "description": OWN_FIELDS["kind"]},
                "metadata": {
                    "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
                    "description": OWN_FIELDS["metadata"]}},
            "required": ["kind", "apiVersion"]}),
    ],
)  # fmt: skip
async def test_version_2_leaves_out_what_it_would_get_wrong(schema: Any, published: Any) -> None:
    catalog = small_catalog()
    catalog.replace_custom([widgets({"type": "object", "properties": {"a": schema}})])

    document = await read_swagger(OpenApi(catalog))

    widget = document["definitions"]["com.example.shop.v1.Widget"]
    assert widget["properties"]["a"] == published


async def test_a_kind_that_keeps_unknown_fields_lists_none() -> None:
    catalog = small_catalog()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    catalog.replace_custom([widgets(schema)])

    document = await read_swagger(OpenApi(catalog))

    assert document["definitions"]["com.example.shop.v1.Widget"].keys() == {
        "type",
        "x-kubernetes-group-version-kind",
    }


async def test_version_2_is_sent_once_to_those_who_keep_it() -> None:
    catalog = small_catalog()
    openapi = OpenApi(catalog)
    first = await openapi.answer_v2(asking(SWAGGER))
    tag = header(first, "ETag") or ""

    again = await openapi.answer_v2(asking(SWAGGER, if_none_match=tag))
    catalog.replace_custom([widgets()])
    changed = await openapi.answer_v2(asking(SWAGGER, if_none_match=tag))

    assert (first.status, again.status, changed.status) == (200, 304, 200)
    assert header(changed, "ETag") != tag


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        (GNOSTIC, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
        (f"{GNOSTIC}, */*", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
    ],
)
async def test_version_2_comes_in_both_forms(accept: str, answered: str) -> None:
    answer = await OpenApi(small_catalog()).answer_v2(asking(SWAGGER, accept=accept))

    assert header(answer, "Content-Type") == answered


async def test_version_2_in_no_form_we_have_is_not_acceptable() -> None:
    answer = await OpenApi(small_catalog()).answer_v2(asking(SWAGGER, accept="text/csv"))

    assert answer.status == 406
