"""What strangers and broken clients send: the right refusal at once, and the hub goes on."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.hub_wire import (
    APPLY_PATCH,
    CONFIG_MAPS,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    HubClient,
    HubProcess,
    config_map,
    hub_here,
    hub_process,
    request_bytes,
    secret,
)
from tests.component.serving.wire import RawClient, quick
from tests.unit.apiserver.http.hostile_requests import hostile_requests

from clusterspace.apiserver.http.bodies import BODY_LIMIT
from clusterspace.testing.steps import until

YAML = "application/yaml"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
TARGET = f"{CONFIG_MAPS}/target"
MEMORY_ALLOWED = 100 * 2**20
SECONDS_ALLOWED = 2.0
"""Of a processor."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with hub_process(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
async def hub(process: HubProcess) -> AsyncIterator[HubClient]:
    """A client of a hub that must still be whole when the test is over."""
    bugs = len(process.bugs())
    client = process.client()
    if (await client.ask("GET", TARGET)).status == 404:
        await client.do("POST", CONFIG_MAPS, config_map("target", data={"x": "y"}))
    yield client
    client.close()
    afterwards = process.client()
    assert (await afterwards.ask("GET", "/readyz")).body == b"ok"
    assert (await afterwards.do("GET", TARGET))["data"] == {"x": "y"}
    afterwards.close()
    assert process.bugs()[bugs:] == []


# -- bodies ------------------------------------------------------------------------------------


def new(data: bytes) -> bytes:
    """Return a ConfigMap with these bytes as its data."""
    head = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"never"},"data":'
    return head + data + b"}"


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"1" + closing * depth


def yaml_bomb() -> bytes:
    lines = [b"a: &a [x,x,x,x,x,x,x,x,x]"]
    for level in range(8):
        again = b",".join([b"*%c" % (97 + level)] * 9)
        lines.append(b"%c: &%c [%b]" % (98 + level, 98 + level, again))
    return b"\n".join(lines)


def joined(count: int, form: bytes) -> bytes:
    return b"{" + b",".join(form % number for number in range(count)) + b"}"


UNREADABLE_JSON: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b" ",
    "half an object": lambda: b'{"kind":"ConfigMap"',
    "two objects": lambda: b"{}{}",
    "NaN": lambda: new(b'{"a":NaN}'),
    "Infinity": lambda: new(b'{"a":-Infinity}'),
    "a number out of range": lambda: new(b'{"a":1e400}'),
    "a million digits": lambda: new(b'{"a":' + b"9" * 1_000_000 + b"}"),
    "not UTF-8": lambda: new(b'{"a":"\xff\xfe"}'),
    "half a surrogate": lambda: new(b'{"a":"\\ud800"}'),
    "half a surrogate as key": lambda: new(b'{"\\ud800":"a"}'),
    "a control character": lambda: new(b'{"a":"\x01"}'),
    "arrays a hundred thousand deep": lambda: new(nested(b"[", b"]", 100_000)),
    "objects a hundred thousand deep": lambda: new(nested(b'{"a":', b"}", 100_000)),
    "three megabytes of brackets": lambda: b"[" * BODY_LIMIT,
    "three megabytes of open quotes": lambda: b'"' * BODY_LIMIT,
    "an array": lambda: b"[]",
    "null": lambda: b"null",
    "metadata that is a list": lambda: b'{"kind":"ConfigMap","apiVersion":"v1","metadata":[]}',
    "a kind that is a number": lambda: b'{"kind":1,"apiVersion":"v1"}',
    "another kind": lambda: b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"never"}}',
    "another group": lambda: b'{"kind":"ConfigMap","apiVersion":"apps/v1"}',
    "a name that is a number": lambda: (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":5}}'
    ),
    "data of numbers": lambda: new(joined(25_000, b'"%x":1')),
}


@pytest.mark.parametrize("name", UNREADABLE_JSON)
async def test_json_that_makes_no_sense_is_refused_in_time(
    hub: HubClient, process: HubProcess, name: str
) -> None:
    body = UNREADABLE_JSON[name]()
    before, started = process.resident_bytes, process.processor_seconds

    code = await hub.refused("POST", CONFIG_MAPS, body)

    assert code == 400
    assert process.processor_seconds - started < SECONDS_ALLOWED
    assert process.resident_bytes - before < MEMORY_ALLOWED
    assert (await hub.ask("GET", f"{CONFIG_MAPS}/never")).status == 404


UNREADABLE_YAML: dict[str, Callable[[], bytes]] = {
    "aliases that multiply": yaml_bomb,
    "an alias of itself": lambda: b"&a [*a]",
    "merge keys": lambda: b"a: &a {x: 1}\nb:\n  <<: *a\n",
    "three megabytes of brackets": lambda: b"[" * BODY_LIMIT,
    "deep sequences": lambda: b"- " * 1_000_000,
    "deep mappings": lambda: b"".join(b" " * depth + b"a:\n" for depth in range(2000)),
    "deep keys": lambda: b"? " * 100_000,
    "two documents": lambda: b"a: 1\n---\nb: 2\n",
    "a Python object": lambda: b'!!python/object/apply:os.system ["true"]',
    "a NUL": lambda: b"a: \x00",
    "infinity": lambda: b"kind: ConfigMap\napiVersion: v1\ndata: {a: .inf}",
}


@pytest.mark.parametrize("content_type", [YAML, APPLY_PATCH])
@pytest.mark.parametrize("name", UNREADABLE_YAML)
async def test_yaml_that_makes_no_sense_is_refused_in_time(
    hub: HubClient, process: HubProcess, name: str, content_type: str
) -> None:
    body = UNREADABLE_YAML[name]()
    before, started = process.resident_bytes, process.processor_seconds
    is_apply = content_type == APPLY_PATCH
    method, path = ("PATCH", f"{TARGET}?fieldManager=me") if is_apply else ("POST", CONFIG_MAPS)

    code = await hub.refused(method, path, body, content_type=content_type)

    assert code == 400
    assert process.processor_seconds - started < SECONDS_ALLOWED
    assert process.resident_bytes - before < MEMORY_ALLOWED


async def test_fifty_thousand_keys_cost_a_second_and_not_the_memory(
    hub: HubClient, process: HubProcess
) -> None:
    before, started = process.resident_bytes, process.processor_seconds
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"wide"},'
    body += joined(50_000, b'"u%x":1')[1:]

    await hub.do("POST", f"{CONFIG_MAPS}?dryRun=All", body)

    assert process.processor_seconds - started < SECONDS_ALLOWED
    assert process.resident_bytes - before < MEMORY_ALLOWED


async def test_more_keys_than_any_object_has_are_refused_before_they_are_looked_at(
    hub: HubClient,
) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"wider"},'
    body += joined(250_000, b'"u%x":1')[1:]

    assert await hub.refused("POST", f"{CONFIG_MAPS}?dryRun=All", body) == 413


async def test_a_body_of_three_megabytes_is_read_and_one_byte_more_is_not(hub: HubClient) -> None:
    padding = BODY_LIMIT - len(msgspec.json.encode(config_map("padded")))
    exact = msgspec.json.encode(config_map("padded")) + b" " * padding

    await hub.do("POST", f"{CONFIG_MAPS}?dryRun=All", exact)

    assert await hub.refused("POST", CONFIG_MAPS, exact + b" ") == 413
    assert await hub.refused("PUT", TARGET, exact + b" ") == 413
    patch = await hub.refused("PATCH", TARGET, exact + b" ", content_type=MERGE_PATCH)
    assert patch == 413
    assert await hub.refused("DELETE", TARGET, exact + b" ") == 413


async def test_a_body_that_says_it_is_huge_is_refused_before_it_is_sent(hub: HubClient) -> None:
    connection = await hub.connect()
    await connection.send(request_bytes("POST", CONFIG_MAPS, f"Content-Length: {10**12}"))

    assert (await connection.answer()).status == 413


async def test_a_chunked_body_counts_as_much_as_any_other(hub: HubClient) -> None:
    connection = await hub.connect()
    piece = b"%x\r\n%b\r\n" % (2**20, b" " * 2**20)
    await connection.send(request_bytes("POST", CONFIG_MAPS, "Transfer-Encoding: chunked"))
    await connection.send(piece * 4)

    assert (await connection.answer()).status == 413


async def test_a_key_that_comes_twice_is_refused_when_asked_and_warned_of_otherwise(
    hub: HubClient,
) -> None:
    body = new(b'{"a":"1","a":"2"}')

    strict = await hub.ask("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    warned = await hub.ask("POST", f"{CONFIG_MAPS}?dryRun=All", body)

    assert strict.status == 400
    assert 'duplicate field "data.a"' in strict.status_message()
    assert warned.status == 201
    assert "duplicate field" in warned.headers["warning"]


@pytest.mark.parametrize("content_type", [APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("depth", [250, 700, 900])
async def test_a_patch_nested_deeper_than_anything_real_is_refused(
    hub: HubClient, content_type: str, depth: int
) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"target"},"data":'
    body += nested(b'{"a":', b"}", depth) + b"}"

    path = f"{TARGET}?fieldManager=me"
    assert await hub.refused("PATCH", path, body, content_type=content_type) == 400


# -- patches -----------------------------------------------------------------------------------


async def test_ten_thousand_patch_operations_are_applied_and_one_more_is_refused(
    hub: HubClient,
) -> None:
    look = {"op": "test", "path": "/data/x", "value": "y"}

    await hub.do("PATCH", TARGET, [look] * 10_000, content_type=JSON_PATCH)

    assert await hub.refused("PATCH", TARGET, [look] * 10_001, content_type=JSON_PATCH) == 413


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param(
            [{"op": "add", "path": "/data/big", "value": "z" * 100_000}]
            + [{"op": "copy", "from": "/data/big", "path": f"/data/c{each}"} for each in range(60)],
            id="many copies",
        ),
        pytest.param(
            [{"op": "copy", "from": "/data", "path": "/data/x"}] * 60, id="copies of copies"
        ),
        pytest.param([{"op": "copy", "from": "", "path": "/data/x"}] * 60, id="copies of it all"),
    ],
)
async def test_a_patch_that_multiplies_by_copying_is_refused(
    hub: HubClient, process: HubProcess, operations: list[dict[str, Any]]
) -> None:
    before = process.resident_bytes

    code = await hub.refused("PATCH", TARGET, operations, content_type=JSON_PATCH)

    assert code in (400, 413, 422)
    assert process.resident_bytes - before < MEMORY_ALLOWED


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "move", "from": "/data", "path": "/data/x"},
        {"op": "remove", "path": "/metadata"},
        {"op": "replace", "path": "", "value": 5},
        {"op": "replace", "path": "/metadata", "value": "s"},
        {"op": "replace", "path": "/metadata/managedFields", "value": 5},
        {"op": "add", "path": "/metadata/finalizers/99999999999999999999", "value": "x"},
        {"op": "add", "path": "/a" * 100_000, "value": "x"},
        {"op": "test", "path": "/data/x", "value": "z"},
        {"op": "whatever", "path": "/data"},
        {"path": "/data"},
        {"op": "add", "path": 5, "value": 1},
    ],
    ids=lambda operation: str(operation)[:40],
)
async def test_a_patch_that_makes_no_sense_is_refused(
    hub: HubClient, operation: dict[str, Any]
) -> None:
    assert await hub.refused("PATCH", TARGET, [operation], content_type=JSON_PATCH) in (400, 422)


@pytest.mark.parametrize(
    "options",
    [
        {"preconditions": [1]},
        {"preconditions": "x"},
        {"preconditions": {"uid": [1]}},
        {"dryRun": 5},
        {"dryRun": "All"},
        {"gracePeriodSeconds": "x"},
        {"gracePeriodSeconds": 1e300},
        {"propagationPolicy": ["x"]},
        {"orphanDependents": "maybe"},
        {"kind": "Pod", "apiVersion": "v1"},
        [],
        5,
    ],
    ids=str,
)
async def test_a_delete_whose_options_cannot_be_read_deletes_nothing(
    hub: HubClient, options: Any
) -> None:
    assert await hub.refused("DELETE", f"{TARGET}?dryRun=All", options) == 400


# -- content types and methods -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "content_type", "code"),
    [
        ("POST", CONFIG_MAPS, "text/plain", 415),
        ("POST", CONFIG_MAPS, "application/xml", 415),
        ("POST", CONFIG_MAPS, MERGE_PATCH, 415),
        ("PUT", TARGET, "application/x-www-form-urlencoded", 415),
        ("PATCH", TARGET, JSON, 415),
        ("PATCH", TARGET, "text/plain", 415),
        ("POST", TARGET, JSON, 405),
        ("PUT", CONFIG_MAPS, JSON, 405),
        ("PATCH", CONFIG_MAPS, MERGE_PATCH, 405),
        ("POST", f"{TARGET}/status", JSON, 404),
        ("TRACE", CONFIG_MAPS, JSON, 405),
        ("BREW", "/api/v1/pods", JSON, 405),
        ("POST", "/api/v1/configmaps", JSON, 405),
        ("POST", "/version", JSON, 405),
    ],
)
async def test_what_a_path_does_not_take_is_refused(
    hub: HubClient, method: str, path: str, content_type: str, code: int
) -> None:
    assert await hub.refused(method, path, config_map("never"), content_type=content_type) == code


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "image/*", "a" * 5000])
async def test_a_representation_nobody_has_is_406(hub: HubClient, accept: str) -> None:
    assert await hub.refused("GET", CONFIG_MAPS, accept=accept) == 406


@pytest.mark.parametrize("unknown", ["wrong", "x" * 60_000, "admin-token x", "ADMIN-TOKEN"])
async def test_a_token_that_is_not_known_is_401(hub: HubClient, unknown: str) -> None:
    assert await hub.refused("GET", CONFIG_MAPS, token=unknown) == 401


# -- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/configmaps/..",
        "/api/v1/namespaces/../configmaps",
        "/api/v1/namespaces/default/../kube-system/secrets",
        "/api/v1/namespaces/%2e%2e/configmaps",
        "/api/v1/namespaces/default%2fconfigmaps%2ftarget",
        "/api/v1/namespaces/default/configmaps/a%2Fb",
        "/api/v1/namespaces/default/configmaps/%252e%252e",
        "/api/v1/namespaces/default/configmaps/a%00",
        "/api/v1/namespaces/default/configmaps/a%0d%0ax",
        "/api/v1/namespaces/default/configmaps/%c0%ae",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1/namespaces//configmaps",
        "//api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/./target",
        "/%2e/api",
    ],
)
async def test_a_path_with_two_readings_is_refused(hub: HubClient, path: str) -> None:
    assert await hub.refused("GET", path) == 400


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/configmap",
        "/api/v1/namespaces/default/configmapss/target",
        "/api/v1/namespaces/default/configmaps/target/nothing",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/nodes/a/nothing",
        "/api/v1/configmaps/target",
        "/api/v2/namespaces/default/configmaps",
        "/apis/apps/v1/namespaces/default/configmaps/target",
        "/apis/none.example.com/v1/things",
        "/api/v1/namespaces/default/configmaps/target%25",
        "/api/v1/namespaces/default/configmaps/target;x=1",
        "/API/v1/namespaces",
        "/nothing",
    ],
)
async def test_a_path_to_nothing_is_not_found(hub: HubClient, path: str) -> None:
    assert (await hub.ask("GET", path)).status in (400, 404)


async def test_resources_whose_names_begin_alike_never_mix(hub: HubClient) -> None:
    """Endpoints and EndpointSlices, `team` and `team-a`: a prefix of a key is not its parent."""
    for name in ("team", "team-a"):
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await hub.do("POST", "/api/v1/namespaces", space)
        await hub.do("POST", f"/api/v1/namespaces/{name}/secrets", secret(f"in-{name}"))
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}}
        await hub.do("POST", f"/api/v1/namespaces/{name}/endpoints", endpoints)
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
        await hub.do("POST", f"/api/v1/namespaces/{name}/resourcequotas", quota)

    for path, names in {
        "/api/v1/namespaces/team/secrets": ["in-team"],
        "/api/v1/namespaces/team-a/secrets": ["in-team-a"],
        "/api/v1/namespaces/team/endpoints": ["team"],
        "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices": [],
        "/api/v1/namespaces/team/resourcequotas": ["team"],
    }.items():
        found = await hub.do("GET", path)
        assert [each["metadata"]["name"] for each in found["items"]] == names, path


async def test_custom_resources_whose_names_begin_alike_never_mix(hub: HubClient) -> None:
    """The objects of `foobars` are not below `foos`, in lists, watches or deletions."""
    for plural in ("foos", "foobars"):
        await hub.do("POST", DEFINITIONS, definition(plural))
    for plural in ("foos", "foobars"):
        await wait_until_served(hub, plural)
        made = {"apiVersion": "x.example.com/v1", "kind": plural.title()}
        await hub.do("POST", objects_of(plural), {**made, "metadata": {"name": f"one-of-{plural}"}})

    watch = await hub.watch(objects_of("foos"), "timeoutSeconds=1")
    assert await listed(hub, "foos") == ["one-of-foos"]
    await hub.do("DELETE", objects_of("foos"))

    assert await listed(hub, "foos") == []
    assert await listed(hub, "foobars") == ["one-of-foobars"]
    assert {event.name for event in await watch.rest()} == {"one-of-foos"}


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def objects_of(plural: str) -> str:
    return f"/apis/x.example.com/v1/namespaces/default/{plural}"


def definition(plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.x.example.com"},
        "spec": {
            "group": "x.example.com",
            "names": {"plural": plural, "kind": plural.title()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


async def wait_until_served(hub: HubClient, plural: str) -> None:
    async def is_served() -> bool:
        return (await hub.ask("GET", objects_of(plural))).status == 200

    await until(is_served)


async def listed(hub: HubClient, plural: str) -> list[str]:
    found = await hub.do("GET", objects_of(plural))
    return [each["metadata"]["name"] for each in found["items"]]


@pytest.mark.parametrize(
    "name",
    [".", "..", "a/b", "a%b", "../x", "A", "a..b", "-a", "é", "a" * 254, "a\0b", "a\nb", " "],
)
async def test_a_name_that_could_be_a_path_is_no_name(hub: HubClient, name: str) -> None:
    assert await hub.refused("POST", CONFIG_MAPS, config_map(name)) == 422


async def test_a_name_with_dots_is_one_name(hub: HubClient) -> None:
    await hub.do("POST", CONFIG_MAPS, config_map("a.b-1.c"))

    assert (await hub.do("GET", f"{CONFIG_MAPS}/a%2eb-1.c"))["metadata"]["name"] == "a.b-1.c"
    assert (await hub.ask("GET", f"{CONFIG_MAPS}/a")).status == 404
    await hub.do("DELETE", f"{CONFIG_MAPS}/a.b-1.c")


# -- queries -----------------------------------------------------------------------------------


def token(**members: Any) -> str:
    whole = {"v": "meta.k8s.io/v1", "rv": 5, "start": "a", **members}
    return base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "forged",
    [
        "!!!",
        "YWJj",
        token(v="meta.k8s.io/v2"),
        token(v=[]),
        token(rv=-2),
        token(rv=0),
        token(rv=True),
        token(rv="5"),
        token(rv=1_000_000),
        token(rv=2**70),
        token(start="../../secrets/default/"),
        token(start="a/../../x"),
        token(start=5),
        base64.urlsafe_b64encode(b"[" * 30_000).decode(),
    ],
    ids=lambda forged: forged[:30],
)
async def test_a_continue_token_we_never_gave_is_refused(hub: HubClient, forged: str) -> None:
    assert await hub.refused("GET", f"{CONFIG_MAPS}?limit=1&continue={forged}") == 400


async def test_a_continue_token_reaches_nothing_outside_its_list(hub: HubClient) -> None:
    path = "/api/v1/namespaces/kube-public/configmaps"
    for start in ("", "\0", "\uffff", "/", "zz", "configmaps/"):
        revision = int((await hub.do("GET", path))["metadata"]["resourceVersion"])
        forged = token(rv=revision, start=start)
        answer = await hub.ask("GET", f"{path}?limit=500&continue={forged}")
        shown = msgspec.json.decode(answer.body).get("items", [])
        assert {each["metadata"]["namespace"] for each in shown} <= {"kube-public"}, start


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=1e5",
        "resourceVersion=%D9%A1",
        f"resourceVersion={'9' * 31}",
        f"resourceVersion={'9' * 5000}",
        "limit=abc",
        "limit=%D9%A3",
        f"limit={'9' * 5000}",
        "timeoutSeconds=soon",
        "labelSelector=a=b=c",
        "labelSelector=%00",
        "labelSelector=%ff",
        f"labelSelector={'(' * 30_000}",
        f"labelSelector={'!' * 30_000}",
        "fieldSelector=spec.nothing=1",
        "fieldSelector=metadata.name=%5C",
        "includeObject=Everything",
        "&".join(["a=1"] * 1001),
    ],
    ids=lambda query: query[:40],
)
async def test_a_query_that_makes_no_sense_is_refused(hub: HubClient, query: str) -> None:
    assert await hub.refused("GET", f"{CONFIG_MAPS}?{query}") == 400


@pytest.mark.parametrize("version", ["abc", "-1", "9" * 5000], ids=lambda version: version[:4])
async def test_a_watch_from_a_version_that_is_none_is_refused(hub: HubClient, version: str) -> None:
    """kube-apiserver answers 500 to these; a Status is a Status."""
    code = await hub.refused("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={version}")
    assert code in (400, 500)


async def test_an_object_is_not_replaced_by_version_numbers_nobody_can_count_to(
    hub: HubClient,
) -> None:
    wanted = config_map("target", resourceVersion="9" * 5000)

    assert await hub.refused("PUT", TARGET, wanted) in (400, 409, 422)


@pytest.mark.parametrize(
    "selector",
    ["a," * 20_000 + "b", "x+in+(" + ",".join(map(str, range(10_000))) + ")"],
    ids=["many requirements", "many values"],
)
async def test_a_huge_selector_is_answered_in_time(
    hub: HubClient, process: HubProcess, selector: str
) -> None:
    started = process.processor_seconds

    found = await hub.do("GET", f"{CONFIG_MAPS}?labelSelector={selector}")

    assert found["items"] == []
    assert process.processor_seconds - started < SECONDS_ALLOWED


async def test_a_list_from_the_future_waits_a_moment_and_says_so(hub: HubClient) -> None:
    started = time.monotonic()

    answer = await hub.ask("GET", f"{CONFIG_MAPS}?resourceVersion=1000000")

    assert answer.status == 504
    assert "Too large resource version" in answer.status_message()
    assert time.monotonic() - started < 30.0  # and not as long as the client has patience


async def test_a_watch_from_the_future_hears_nothing_of_the_past(hub: HubClient) -> None:
    current = int((await hub.do("GET", CONFIG_MAPS))["metadata"]["resourceVersion"])
    watch = await hub.watch(CONFIG_MAPS, f"resourceVersion={current + 2}")

    for number in range(3):
        await hub.do("POST", CONFIG_MAPS, config_map(f"later-{number}"))

    event = await watch.next()
    assert event is not None
    assert (event.name, event.revision) == ("later-2", current + 3)


# -- the wire ----------------------------------------------------------------------------------


async def test_requests_with_two_readings_are_refused_and_nothing_behind_them_is_handled(
    tmp_path: Path,
) -> None:
    """Over TLS there is no half-close: what waits for more gets its 408 instead."""
    limits = quick(header_seconds=0.2, body_window_seconds=0.2, linger_seconds=0.05)
    fooled: dict[str, bytes] = {}

    async def try_one(name: str, raw: bytes) -> None:
        received = await converse(await hub.connect(), raw)
        line = received.partition(b"\r\n")[0]
        if not line.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")) or b"gitVersion" in received:
            fooled[name] = received

    async with hub_here(tmp_path, limits=limits) as hub, asyncio.TaskGroup() as group:
        for hostile in hostile_requests():
            smuggled = hostile.raw.replace(b"GET /smuggled", b"GET /version")
            group.create_task(try_one(hostile.name, smuggled))

    assert fooled == {}


async def converse(connection: RawClient, raw: bytes) -> bytes:
    """Send everything and return all that comes back before the hub closes."""
    try:
        await connection.send(raw)
        return await connection.rest()
    except ConnectionError:
        return b""
    finally:
        connection.vanish()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: hub\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: hub\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: hub\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", 431),
    ],
    ids=["target", "one header", "many headers"],
)
async def test_too_much_before_the_body_is_refused(hub: HubClient, raw: bytes, code: int) -> None:
    connection = await hub.connect()
    await connection.send(raw)
    answer = await connection.answer()

    assert answer.status == code
    answer.status_message()


async def test_half_sent_requests_that_end_disturb_nobody(hub: HubClient) -> None:
    whole = request_bytes("POST", CONFIG_MAPS, body=msgspec.json.encode(config_map("never")))
    for cut in range(1, len(whole) - 1, 7):
        connection = await hub.connect()
        await connection.send(whole[:cut])
        connection.vanish()

    assert (await hub.ask("GET", f"{CONFIG_MAPS}/never")).status == 404


async def test_slow_headers_and_slow_bodies_are_told_408(tmp_path: Path) -> None:
    limits = quick(header_seconds=0.3, body_window_seconds=0.3)
    async with hub_here(tmp_path, limits=limits) as hub:
        slow_head, slow_body = await hub.connect(), await hub.connect()
        await slow_head.send(b"GET /api HTTP/1.1\r\nHost: h")
        await slow_body.send(request_bytes("POST", CONFIG_MAPS, "Content-Length: 100000") + b"{")

        for connection in (slow_head, slow_body):
            answer = await connection.answer()
            assert answer.status == 408
            answer.status_message()
            assert await connection.rest() == b""
        assert (await hub.ask("GET", "/readyz")).body == b"ok"


async def test_a_watcher_that_never_reads_is_cut_off_and_the_others_go_on(
    hub: HubClient, process: HubProcess
) -> None:
    current = (await hub.do("GET", CONFIG_MAPS))["metadata"]["resourceVersion"]
    query = f"resourceVersion={current}"
    sleepers = [await hub.watch(CONFIG_MAPS, query) for _ in range(20)]
    for each in sleepers:
        each._connection.stop_reading()
    awake = await hub.watch(CONFIG_MAPS, query)
    before = process.resident_bytes
    big = config_map("big", data={"v": "x" * 500_000})

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(awake.until("done"))
        for number in range(60):
            await hub.do("POST", CONFIG_MAPS, {**big, "metadata": {"name": f"big-{number}"}})
            await hub.do("DELETE", f"{CONFIG_MAPS}/big-{number}")
        await hub.do("POST", CONFIG_MAPS, config_map("done"))
    events = listening.result()

    assert len(events) == 121, "the watcher that reads has it all"
    # 60 MB of events, 20 sleepers: each may hold 2 MB and one event; the past is held once.
    assert process.resident_bytes - before < 200 * 2**20
    for each in sleepers:
        each._connection.resume_reading()
        last = [event async for event in each][-1]
        assert (last.type, last.object["code"]) == ("ERROR", 410)
    await hub.do("DELETE", f"{CONFIG_MAPS}/done")


async def test_an_object_cannot_grow_without_end_by_patches(
    hub: HubClient, process: HubProcess
) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    labels = {"app": "grower"}
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "a"}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "grower"}}
    await hub.do("POST", path, {**deployment, "spec": spec})
    more = {"name": "B", "value": "x" * 1_000_000}
    grow = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": more}]

    codes: list[int] = []
    while len(codes) < 10 and 413 not in codes:
        answer = await hub.ask("PATCH", f"{path}/grower", grow, content_type=JSON_PATCH)
        codes.append(answer.status)

    assert codes[-1] == 413, codes
    await hub.do("DELETE", f"{path}/grower")
