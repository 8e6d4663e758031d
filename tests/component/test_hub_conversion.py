"""Versions that a webhook converts: read and written in either, stored in one."""

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.component.hub_wire import MERGE_PATCH, HubClient, hub_here

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/shop.example.com"
OLD, NEW = f"{GROUP}/v1/namespaces/default/stalls", f"{GROUP}/v2/namespaces/default/stalls"
TEXT = {"type": "string"}


class Webhook:
    """`spec.hostPort: "a:1"` in v1 is `spec.host: a, spec.port: "1"` in v2."""

    def __init__(self) -> None:
        self.url = ""
        self.reviews = 0
        self.connections: set[Any] = set()
        """The addresses that reviews came from."""
        self._transports: list[Any] = []
        self.spoil: Callable[[dict[str, Any]], None] = lambda _: None

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.reviews += 1
        assert request.transport is not None
        self._transports.append(request.transport)
        self.connections.add(request.transport.get_extra_info("peername"))
        wanted = review["request"]["desiredAPIVersion"]
        response = {
            "uid": review["request"]["uid"],
            "result": {"status": "Success"},
            "convertedObjects": [
                self.convert(each, wanted) for each in review["request"]["objects"]
            ],
        }
        self.spoil(response)
        answer = {**review, "request": None, "response": response}
        return web.json_response(answer)

    async def close_connections(self) -> None:
        """Close what clients keep, and wait until that is said."""
        for transport in self._transports:
            transport.close()
        await settled()

    def convert(self, stall: dict[str, Any], wanted: str) -> dict[str, Any]:
        spec = dict(stall["spec"])
        if wanted.endswith("v2") and "hostPort" in spec:
            spec["host"], spec["port"] = spec.pop("hostPort").split(":")
        elif wanted.endswith("v1") and "host" in spec:
            spec["hostPort"] = f"{spec.pop('host')}:{spec.pop('port')}"
        return {**stall, "apiVersion": wanted, "spec": spec}


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    made = Webhook()
    app = web.Application()
    app.router.add_post("/convert", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=loopback_tls().context)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"https://{host}:{port}/convert"
    yield made
    await runner.cleanup()


def stalls(url: str, storage: str = "v2", **config: Any) -> dict[str, Any]:
    fields = {"v1": ["hostPort"], "v2": ["host", "port"]}

    def version(name: str) -> dict[str, Any]:
        spec = {"type": "object", "properties": dict.fromkeys(fields[name], TEXT)}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {"openAPIV3Schema": schema},
        }

    authority = base64.b64encode(loopback_tls().authority).decode()
    client = {"url": url, "caBundle": authority, **config}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "stalls.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "stalls", "kind": "Stall"},
            "versions": [version("v1"), version("v2")],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            },
        },
    }


def stall(name: str, served: str, **spec: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"of": name}}
    return {
        "apiVersion": f"shop.example.com/{served}",
        "kind": "Stall",
        "metadata": metadata,
        "spec": spec,
    }


@asynccontextmanager
async def market(tmp_path: Path, definition: dict[str, Any]) -> AsyncGenerator[HubClient]:
    async with hub_here(tmp_path) as hub:
        await hub.do("POST", DEFINITIONS, definition)

        async def is_served() -> bool:
            return (await hub.ask("GET", NEW)).status == 200

        await until(is_served)
        yield hub


async def test_an_object_is_the_same_in_every_version(tmp_path: Path, webhook: Webhook) -> None:
    async with market(tmp_path, stalls(webhook.url)) as hub:
        made = await hub.do("POST", OLD, stall("a", "v1", hostPort="x:1"))
        await hub.do("POST", NEW, stall("b", "v2", host="y", port="2"))

        assert made["spec"] == {"hostPort": "x:1"}
        assert (await hub.do("GET", f"{NEW}/a"))["spec"] == {"host": "x", "port": "1"}
        in_old, in_new = await hub.do("GET", OLD), await hub.do("GET", NEW)
        assert [each["spec"] for each in in_old["items"]] == [
            {"hostPort": "x:1"},
            {"hostPort": "y:2"},
        ]
        assert {each["apiVersion"] for each in in_old["items"]} == {"shop.example.com/v1"}
        assert [each["metadata"] for each in in_old["items"]] == [
            each["metadata"] for each in in_new["items"]
        ]
        page = await hub.do("GET", f"{OLD}?labelSelector=of%3Db&limit=1")
        assert [each["spec"] for each in page["items"]] == [{"hostPort": "y:2"}]


async def test_a_change_in_one_version_is_seen_in_the_other(
    tmp_path: Path, webhook: Webhook
) -> None:
    async with market(tmp_path, stalls(webhook.url)) as hub:
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))
        stream = await hub.watch(OLD)
        first = await stream.next()
        change = {"spec": {"hostPort": "z:3"}}
        patched = await hub.do("PATCH", f"{OLD}/a", change, content_type=MERGE_PATCH)
        then = await stream.next()
        await hub.do("DELETE", f"{OLD}/a")
        gone = await stream.next()

        assert patched["spec"] == {"hostPort": "z:3"}
        assert [each.type for each in (first, then, gone) if each] == [
            "ADDED",
            "MODIFIED",
            "DELETED",
        ]
        shown = [each.object["spec"]["hostPort"] for each in (first, then, gone) if each]
        assert shown == ["x:1", "z:3", "z:3"]


async def test_a_watch_of_a_failing_webhook_ends_with_its_reason(
    tmp_path: Path, webhook: Webhook
) -> None:
    def refuse(response: dict[str, Any]) -> None:
        response["result"] = {"status": "Failure", "message": "closed today"}

    async with market(tmp_path, stalls(webhook.url)) as hub:
        bookmarks = "allowWatchBookmarks=true&timeoutSeconds=3"
        quiet = await hub.watch(OLD, bookmarks)
        assert [each.type for each in await quiet.rest()] == ["BOOKMARK"]
        stream = await hub.watch(OLD)
        webhook.spoil = refuse
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))

        (said,) = await stream.rest()

        assert (said.type, said.object["code"]) == ("ERROR", 500)
        assert said.object["message"].endswith("closed today")


async def test_objects_of_an_older_storage_version_are_converted_too(
    tmp_path: Path, webhook: Webhook
) -> None:
    async with market(tmp_path, stalls(webhook.url, storage="v1")) as hub:
        await hub.do("POST", OLD, stall("a", "v1", hostPort="x:1"))
        current = await hub.do("GET", f"{DEFINITIONS}/stalls.shop.example.com")
        changed = {**current, "spec": stalls(webhook.url, storage="v2")["spec"]}
        await hub.do("PUT", f"{DEFINITIONS}/stalls.shop.example.com", changed)

        async def is_stored_anew() -> bool:
            before = webhook.reviews
            await hub.do("PATCH", f"{NEW}/a", {"spec": {"port": "9"}}, content_type=MERGE_PATCH)
            await hub.do("PATCH", f"{NEW}/a", {"spec": {"port": "1"}}, content_type=MERGE_PATCH)
            return webhook.reviews == before

        await until(is_stored_anew)
        assert (await hub.do("GET", f"{OLD}/a"))["spec"] == {"hostPort": "x:1"}


async def test_what_is_stored_is_read_and_deleted_while_the_webhook_is_down(
    tmp_path: Path, webhook: Webhook
) -> None:
    def refuse(response: dict[str, Any]) -> None:
        response["result"] = {"status": "Failure", "message": "closed today"}

    async with market(tmp_path, stalls(webhook.url)) as hub:
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))
        webhook.spoil = refuse

        failed = await hub.ask("GET", f"{OLD}/a")
        assert (failed.status, failed.status_message()) == (
            500,
            "Internal error occurred: conversion webhook for shop.example.com/v1, Kind=Stall "
            "failed: closed today",
        )
        assert (await hub.ask("GET", OLD)).status == 500
        assert (await hub.do("GET", f"{NEW}/a"))["spec"] == {"host": "x", "port": "1"}
        assert (await hub.ask("DELETE", f"{OLD}/a")).status == 200


def renamed(response: dict[str, Any]) -> None:
    response["convertedObjects"][0]["metadata"]["name"] = "other"


def lost(response: dict[str, Any]) -> None:
    response["convertedObjects"] = []


def of_another(response: dict[str, Any]) -> None:
    response["uid"] = "other"


def unconverted(response: dict[str, Any]) -> None:
    response["convertedObjects"][0]["apiVersion"] = "shop.example.com/v2"


@pytest.mark.parametrize("spoil", [renamed, lost, of_another, unconverted])
async def test_an_answer_that_is_not_what_was_asked_for_is_not_taken(
    tmp_path: Path, webhook: Webhook, spoil: Callable[[dict[str, Any]], None]
) -> None:
    async with market(tmp_path, stalls(webhook.url)) as hub:
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))
        webhook.spoil = spoil

        assert (await hub.ask("GET", f"{OLD}/a")).status == 500


async def test_a_webhook_changes_labels_and_no_other_metadata(
    tmp_path: Path, webhook: Webhook
) -> None:
    def relabel(response: dict[str, Any]) -> None:
        metadata = response["convertedObjects"][0]["metadata"]
        metadata["labels"] = {"new": "label"}
        metadata["finalizers"] = ["example.com/forever"]
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]

    async with market(tmp_path, stalls(webhook.url)) as hub:
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))
        webhook.spoil = relabel

        metadata = (await hub.do("GET", f"{OLD}/a"))["metadata"]

        assert metadata["labels"] == {"new": "label"}
        assert not {"finalizers", "ownerReferences"} & metadata.keys()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"url": "https://169.254.169.254/latest"}, "a cloud's metadata service"),
        ({"caBundle": ""}, "certificate"),
    ],
)
async def test_a_webhook_leads_nowhere_it_may_not_and_must_be_who_it_claims_to_be(
    tmp_path: Path, webhook: Webhook, config: dict[str, str], why: str
) -> None:
    async with market(tmp_path, stalls(**{"url": webhook.url, **config})) as hub:
        await hub.do("POST", NEW, stall("a", "v2", host="x", port="1"))

        failed = await hub.ask("GET", f"{OLD}/a")

        assert failed.status == 500
        assert why in failed.status_message()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"clientConfig": None}, "spec.conversion.webhookClientConfig"),
        ({"clientConfig": {}}, "spec.conversion.webhookClientConfig"),
        (
            {"clientConfig": {"url": "http://x.example.com"}},
            "spec.conversion.webhookClientConfig.url",
        ),
        ({"conversionReviewVersions": []}, "spec.conversion.conversionReviewVersions"),
        ({"conversionReviewVersions": ["v2"]}, "spec.conversion.conversionReviewVersions"),
        ({"conversionReviewVersions": ["v1beta1"]}, "spec.conversion.conversionReviewVersions"),
    ],
)
async def test_a_webhook_that_cannot_be_called_is_refused_with_its_definition(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    wanted = stalls("https://x.example.com")
    wanted["spec"]["conversion"]["webhook"] |= change
    async with hub_here(tmp_path) as hub:
        refused = await hub.ask("POST", DEFINITIONS, wanted)

        causes = json.loads(refused.body)["details"]["causes"]
        assert refused.status == 422
        assert field in {each["field"] for each in causes}


async def test_a_burst_of_calls_has_one_connection_and_another_authority_a_new_one(
    tmp_path: Path, webhook: Webhook
) -> None:
    async with market(tmp_path, stalls(webhook.url)) as hub:
        for number in range(10):
            await hub.do("POST", OLD, stall(f"s-{number}", "v1", hostPort="x:1"))
        assert webhook.reviews >= 10
        # One after the other, so one at a time; another only where the burst paused for a second.
        assert len(webhook.connections) < webhook.reviews / 2

        # The connection that is kept was made while its server was trusted.
        current = await hub.do("GET", f"{DEFINITIONS}/stalls.shop.example.com")
        strangers = Authority.create("strangers", SystemClock().now())
        other = base64.b64encode(strangers.pair.certificate).decode()
        changed = {**current, "spec": stalls(webhook.url, caBundle=other)["spec"]}
        await hub.do("PUT", f"{DEFINITIONS}/stalls.shop.example.com", changed)

        async def is_refused() -> bool:
            name = f"t-{webhook.reviews}"
            return (await hub.ask("POST", OLD, stall(name, "v1", hostPort="x:1"))).status == 500

        await until(is_refused)


async def test_a_webhook_that_closes_its_connections_is_called_on_new_ones(
    tmp_path: Path, webhook: Webhook
) -> None:
    async with market(tmp_path, stalls(webhook.url)) as hub:
        await hub.do("POST", OLD, stall("before", "v1", hostPort="x:1"))
        before = set(webhook.connections)
        await webhook.close_connections()

        await hub.do("POST", OLD, stall("after", "v1", hostPort="x:1"))

        assert webhook.connections - before
