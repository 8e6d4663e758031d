"""Definitions that change under their objects, versions that are given up, bodies with mistakes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.hub_wire import APPLY_PATCH, CONFIG_MAPS, HubClient, hub_here

from clusterspace.testing.steps import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/widgets.shop.example.com"
GROUP = "/apis/shop.example.com"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubClient]:
    async with hub_here(tmp_path) as client:
        yield client


def version(name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": schema},
        **more,
    }


def definition(*versions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": list(versions),
            **more,
        },
    }


async def define(hub: HubClient, wanted: dict[str, Any]) -> None:
    """Create or replace the definition, and wait until its first version is served as it says."""
    existing = await hub.ask("GET", DEFINITION)
    if existing.status == 404:
        await hub.do("POST", DEFINITIONS, wanted)
    else:
        metadata = msgspec.json.decode(existing.body)["metadata"]
        await hub.do("PUT", DEFINITION, {**wanted, "metadata": metadata})
    first = wanted["spec"]["versions"][0]["name"]

    async def is_served() -> bool:
        return (await hub.ask("GET", f"{GROUP}/{first}/widgets")).status == 200

    await until(is_served)


def widget(name: str, api_version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"shop.example.com/{api_version}",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


TEXT = {"type": "string"}
WIDGETS = f"{GROUP}/v1/widgets"


async def spec_of(hub: HubClient, name: str, served: str = "v1") -> Any:
    return (await hub.do("GET", f"{GROUP}/{served}/widgets/{name}"))["spec"]


async def test_a_default_that_came_later_is_read_from_objects_that_were_there(
    hub: HubClient,
) -> None:
    await define(hub, definition(version("v1", {"a": TEXT}, storage=True)))
    await hub.do("POST", WIDGETS, widget("old", a="x"))
    with_default = {"a": TEXT, "b": {**TEXT, "default": "B"}}

    await define(hub, definition(version("v1", with_default, storage=True)))
    await until(lambda: is_equal(hub, "old", {"a": "x", "b": "B"}))

    listed = await hub.do("GET", WIDGETS)
    watched = await (await hub.watch(WIDGETS)).next()
    assert watched is not None
    assert [each["spec"] for each in listed["items"]] == [{"a": "x", "b": "B"}]
    assert watched.object["spec"] == {"a": "x", "b": "B"}
    made = await hub.do("POST", WIDGETS, widget("new", a="y"))
    assert await spec_of(hub, "new") == made["spec"] == {"a": "y", "b": "B"}


async def is_equal(hub: HubClient, name: str, expected: Any) -> bool:
    return await spec_of(hub, name) == expected


async def test_a_default_that_is_gone_stays_in_the_objects_that_got_it(hub: HubClient) -> None:
    with_default = {"a": TEXT, "b": {**TEXT, "default": "B"}}
    await define(hub, definition(version("v1", with_default, storage=True)))
    await hub.do("POST", WIDGETS, widget("old", a="x"))

    await define(hub, definition(version("v1", {"a": TEXT, "b": TEXT}, storage=True)))

    assert await spec_of(hub, "old") == {"a": "x", "b": "B"}


async def test_objects_outlive_a_change_of_the_storage_version(tmp_path: Path) -> None:
    """Stored as v1, read and written as either while v2 is stored, on and on after a restart."""
    fields = {"a": TEXT, "b": {**TEXT, "default": "B"}}
    async with hub_here(tmp_path, store="sqlite") as hub:
        await define(
            hub, definition(version("v1", {"a": TEXT}, storage=True), version("v2", fields))
        )
        await hub.do("POST", WIDGETS, widget("old", a="x"))
        await define(
            hub, definition(version("v1", {"a": TEXT}), version("v2", fields, storage=True))
        )
        await until(lambda: is_equal_as(hub, "v2", {"a": "x", "b": "B"}))
        assert await spec_of(hub, "old", "v1") == {"a": "x"}

    async with hub_here(tmp_path, store="sqlite") as hub:
        assert await spec_of(hub, "old", "v2") == {"a": "x", "b": "B"}
        listed = await hub.do("GET", f"{GROUP}/v2/widgets")
        assert [each["apiVersion"] for each in listed["items"]] == ["shop.example.com/v2"]
        stream = await hub.watch(f"{GROUP}/v2/widgets")
        await hub.do("DELETE", f"{GROUP}/v2/widgets/old")
        assert [each.type for each in await stream.take(2)] == ["ADDED", "DELETED"]


async def is_equal_as(hub: HubClient, served: str, expected: Any) -> bool:
    return await spec_of(hub, "old", served) == expected


async def test_a_rule_that_could_be_too_dear_is_refused_with_its_definition(hub: HubClient) -> None:
    unbounded = {"type": "array", "items": {"type": "array", "items": TEXT}}
    wanted = version("v1", {"a": unbounded}, storage=True)
    spec = wanted["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rule = "self.a.all(x, x.all(y, self.a.all(z, z.all(w, w == y))))"
    spec["x-kubernetes-validations"] = [{"rule": rule}]

    answer = await hub.ask("POST", DEFINITIONS, definition(wanted))

    assert answer.status == 422
    assert "estimated rule cost exceeds budget by factor of more than 100x" in answer.body.decode()


async def test_who_uses_a_version_that_is_given_up_is_warned(hub: HubClient) -> None:
    await define(
        hub,
        definition(
            version("v1beta1", {}, deprecated=True),
            version("v1beta2", {}, deprecated=True, deprecationWarning="go away"),
            version("v1", {}, storage=True),
        ),
    )

    async def warning(served: str) -> str:
        answer = await hub.ask("GET", f"{GROUP}/{served}/widgets")
        return answer.headers.get("warning", "")

    expected = "shop.example.com/v1beta1 Widget is deprecated; use shop.example.com/v1 Widget"
    assert await warning("v1beta1") == f'299 - "{expected}"'
    assert await warning("v1beta2") == '299 - "go away"'
    assert await warning("v1") == ""


TWICE = b"""apiVersion: v1
kind: ConfigMap
metadata:
  name: m
  labels:
    a: b
data:
  foo: one
  foo: two
"""
LINE = 'line 9: key "foo" already set in map'


async def test_a_key_that_comes_twice_in_yaml_is_named_by_its_line(hub: HubClient) -> None:
    target = f"{CONFIG_MAPS}/m?fieldManager=me&fieldValidation="

    strict = await hub.ask("PATCH", f"{target}Strict", TWICE, content_type=APPLY_PATCH)
    warned = await hub.ask("PATCH", f"{target}Warn", TWICE, content_type=APPLY_PATCH)
    posted = await hub.ask(
        "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", TWICE, content_type="application/yaml"
    )

    assert (strict.status, strict.status_message()) == (
        400,
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        f"  {LINE}",
    )
    assert warned.status == 201
    assert LINE in warned.headers["warning"].replace("\\", "")
    assert posted.status_message().endswith(
        f"strict decoding error: yaml: unmarshal errors:\n  {LINE}"
    )


async def test_a_key_that_comes_twice_in_a_patch_is_named(hub: HubClient) -> None:
    await hub.do("POST", CONFIG_MAPS, msgspec.yaml.decode(TWICE.replace(b"  foo: two\n", b"")))
    patch = b'{"data": {"foo": "two", "foo": "three"}}'

    answer = await hub.ask(
        "PATCH",
        f"{CONFIG_MAPS}/m?fieldValidation=Strict",
        patch,
        content_type="application/merge-patch+json",
    )

    assert answer.status == 400
    assert 'duplicate field "data.foo"' in answer.status_message()


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"spec": "x"}, '"map[spec:x]": cannot restore struct from: string'),
        (
            {"metadata": {"labels": []}},
            '"map[metadata:map[labels:[]]]": cannot restore map from slice',
        ),
        ({"metadata": []}, '"map[metadata:[]]": cannot restore struct from: slice'),
        (
            {"metadata": {"labels": {"a": 1}}},
            '"map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string',
        ),
        ({"spec": {"replicas": "3"}}, '"map[spec:map[replicas:3]]": unrecognized type: int32'),
        ({"spec": {"template": {"spec": {"containers": "x"}}}}, "cannot restore slice from string"),
        (
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": True}}}},
            "json: cannot unmarshal bool into Go value of type int32",
        ),
    ],
)
async def test_a_strategic_patch_of_the_wrong_type_is_refused_in_kubernetes_words(
    hub: HubClient, patch: Any, why: str
) -> None:
    pod = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }
    await hub.do("POST", DEPLOYMENTS, web)

    answer = await hub.ask(
        "PATCH",
        f"{DEPLOYMENTS}/web",
        patch,
        content_type="application/strategic-merge-patch+json",
    )

    assert answer.status == 422
    assert answer.status_message().startswith(' "" is invalid: patch: Invalid value: "map[')
    assert answer.status_message().endswith(why)
