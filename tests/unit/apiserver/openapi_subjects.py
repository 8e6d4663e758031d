"""Resources to describe, requests to describe them for, and a check of any description."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.forms import Form
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import (
    Exchange,
    Headers,
    IncomingBody,
    Request,
    RequestHead,
    Response,
)
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.builtins.printers.cells import Printer
from clusterspace.builtins.resources import all_resources, find_resource
from clusterspace.kube.resources import ResourceInfo, Subresource
from clusterspace.kube.schemas.model import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_WRITE = ("get", "patch", "update")
METHODS = frozenset({"get", "put", "post", "patch", "delete"})

WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A thing to sell.",
    "required": ["spec"],
    "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "default": 1, "minimum": 0},
                "port": {"x-kubernetes-int-or-string": True},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}},
                    },
                },
                "labels": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "x-kubernetes-map-type": "atomic",
                },
            },
        },
    },
}


class _OnlySchema:
    """Rules that know the fields of a kind and nothing else."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = Schema(schema)


def serve(info: ResourceInfo, schema: Mapping[str, Any], *, is_custom: bool) -> Served:
    rules: Any = _OnlySchema(schema)
    form = Form.of(
        kind=info.kind,
        api_version=info.api_version,
        stored_version=info.api_version,
        bare_items=not is_custom,
    )
    return Served(
        info=info,
        rules=rules,
        form=form,
        printer=Printer(()),
        storage=info.group_resource,
        is_custom=is_custom,
    )


def builtin(group: str, version: str, plural: str) -> Served:
    resource = find_resource(group, version, plural)
    assert resource is not None
    return serve(resource.info, {}, is_custom=False)


def all_builtins() -> list[Served]:
    return [serve(resource.info, {}, is_custom=False) for resource in all_resources()]


def widgets(schema: Mapping[str, Any] = WIDGET_SCHEMA) -> Served:
    info = ResourceInfo(
        group="shop.example.com",
        version="v1",
        kind="Widget",
        plural="widgets",
        singular="widget",
        namespaced=True,
        verbs=ALL_VERBS,
        subresources=(
            Subresource("status", "Widget", "shop.example.com", "v1", READ_WRITE),
            Subresource("scale", "Scale", "autoscaling", "v1", READ_WRITE),
        ),
    )
    return serve(info, schema, is_custom=True)


def asking(target: str, **headers: str) -> RequestContext:
    """Return a GET on its way; `if_none_match="x"` becomes the header `if-none-match: x`."""
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    head = RequestHead(
        method="GET",
        target=target.encode(),
        version="1.1",
        headers=Headers(pairs),
        content_length=0,
        expects_continue=False,
        is_upgrade=False,
        keeps_alive=True,
    )
    # A GET is answered without its connection: nothing here reads a body or starts a stream.
    request = Request(head, IncomingBody(is_complete=True), cast("Exchange", None))
    return RequestContext(request, read_request("GET", request.path, request.query), request_id="1")


def header(response: Response | None, name: str) -> str | None:
    assert response is not None
    values = [value for key, value in response.headers if key == name]
    assert len(values) <= 1, f"{name} is said {len(values)} times"
    return values[0] if values else None


def operations_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Return path, method and operation of everything a document offers."""
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method]


def problems_of(document: Mapping[str, Any]) -> list[str]:
    """Return why a document is not OpenAPI 3.0; empty when it is."""
    found = [] if document["openapi"].startswith("3.0.") else ["not version 3.0"]
    found += [f"info has no {key}" for key in ("title", "version") if not document["info"].get(key)]
    schemas = document["components"]["schemas"]
    for target in _references(document):
        if target.removeprefix("#/components/schemas/") not in schemas:
            found.append(f"{target} leads nowhere")
    for path, item in document["paths"].items():
        found += [f"{path}: {problem}" for problem in _path_problems(path, item)]
    ids = [operation["operationId"] for _, _, operation in operations_of(document)]
    return found + [f"{name} is used twice" for name in sorted(set(ids)) if ids.count(name) > 1]


def _path_problems(path: str, item: Mapping[str, Any]) -> Iterator[str]:
    for key in item.keys() - METHODS - {"parameters"}:
        yield f"{key} is no method"
    in_path = {each["name"] for each in item.get("parameters", ()) if each["in"] == "path"}
    if in_path != {part[1:-1] for part in path.split("/") if part.startswith("{")}:
        yield f"declares the path parameters {sorted(in_path)}"
    for method in METHODS & item.keys():
        parameters = [*item.get("parameters", ()), *item[method].get("parameters", ())]
        names = [(each["in"], each["name"]) for each in parameters]
        if len(names) != len(set(names)):
            yield f"{method} has a parameter twice"
        if not all("schema" in each for each in parameters):
            yield f"{method} has a parameter without a schema"
        if not item[method].get("responses"):
            yield f"{method} has no responses"
        if not all("description" in each for each in item[method]["responses"].values()):
            yield f"{method} has a response without a description"


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        held = cast("dict[str, Any]", node)
        if isinstance(held.get("$ref"), str):
            yield held["$ref"]
        for child in held.values():
            yield from _references(child)
    elif isinstance(node, list):
        for child in cast("list[Any]", node):
            yield from _references(child)
