"""Admission webhooks as a table: a real HTTPS server that allows, denies, changes, lies and sleeps.

Every case has a namespace and webhooks that are called for it only. Both the answers of the API
server and what it sent to the webhooks are looked at.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from tests.conformance.admission_policies import (
    DEPLOYMENTS,
    MAPS,
    MERGE,
    Ask,
    Json,
    ask_of,
    deployment,
    new,
    rule,
)

from clusterspace.client.connection import Connection
from clusterspace.testing.certificates import loopback_tls

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_TRIES: Final = 100
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _add(path: str, value: Any) -> list[Json]:
    return [{"op": "add", "path": path, "value": value}]


PATCHES: Final[Mapping[str, Any]] = {
    "/add-b": _add("/data/b", "2"),
    "/add-c": _add("/data/c", "3"),
    "/label": _add("/metadata/labels", {"made": "here"}),
    "/nothing-there": [{"op": "remove", "path": "/data/none"}],
    "/elsewhere": _add("/metadata/namespace", "default"),
    "/replicas": _add("/spec/replicas", 4),
    "/unknown-field": _add("/wrong", 1),
    "/to-scale": _add("/spec/replicas", 2),
}
"""What mutating paths answer."""


class WebhookServer:
    """Answers by its path, and remembers what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.reviews: dict[str, list[Json]] = {}

    async def answer(  # noqa: C901, PLR0912 - a table
        self, request: web.Request
    ) -> web.StreamResponse:
        review: Json = await request.json()
        asked, path = review["request"], request.path
        self.reviews.setdefault(asked.get("namespace", ""), []).append(
            {"path": path, "query": request.query_string, **_shown_review(review)}
        )
        response: Json = {"uid": asked["uid"], "allowed": True}
        answer: Json = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        match path:
            case "/deny":
                response |= {"allowed": False}
            case "/deny-message":
                response |= {"allowed": False, "status": {"message": "not today"}}
            case "/deny-reason":
                response |= {"allowed": False, "status": {"reason": "Conflict"}}
            case "/deny-code":
                status = {"code": 409, "reason": "Conflict", "message": "taken"}
                response |= {"allowed": False, "status": status}
            case "/deny-success":
                response |= {"allowed": False, "status": {"code": 200, "status": "Success"}}
            case "/warn":
                response |= {"warnings": ["mind the gap", "twice"], "auditAnnotations": {"k": "v"}}
            case "/wrong-uid":
                response |= {"uid": "another"}
            case "/wrong-kind":
                answer |= {"apiVersion": "admission.k8s.io/v9"}
            case "/slow":
                await asyncio.sleep(3)
            case "/no-type":
                response |= {"patch": _encoded(PATCHES["/add-b"])}
            case "/type-alone":
                response |= {"patchType": "JSONPatch"}
            case "/no-patch":
                response |= {"patchType": "JSONPatch", "patch": base64.b64encode(b"{").decode()}
            case "/idempotent":
                data = asked["object"]["data"]
                patch = _add("/data/seen", ",".join(sorted(data)))
                response |= {"patchType": "JSONPatch", "patch": _encoded(patch)}
            case _ if path in PATCHES:
                response |= {"patchType": "JSONPatch", "patch": _encoded(PATCHES[path])}
            case _:
                pass
        if path != "/absent":
            answer["response"] = response
        return web.json_response(answer)


def _encoded(patch: Any) -> str:
    return base64.b64encode(json.dumps(patch).encode()).decode()


def _shown_review(review: Json) -> Json:
    """Return what a webhook was sent, without what differs from one run to the next."""
    request = {k: v for k, v in review["request"].items() if k not in ("uid", "userInfo")}
    for name in ("object", "oldObject"):
        given = request[name]
        if given is not None:
            metadata = dict(given.get("metadata", {}))
            if given.get("kind") == "Scale":
                metadata.pop("managedFields", None)  # which ours has none of
            request[name] = {
                "metadata fields": sorted(metadata),
                **{k: v for k, v in given.items() if k in ("kind", "apiVersion", "data", "spec")},
            }
    return {"apiVersion": review["apiVersion"], "request": request}


@asynccontextmanager
async def webhook_server() -> AsyncGenerator[WebhookServer]:
    made = WebhookServer()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=loopback_tls().context)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"https://{host}:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()


def hook(path: str, **more: Any) -> Json:
    return {"path": path, **more}


@dataclass(frozen=True)
class WebhookCase:
    """Webhooks of one configuration, and requests that meet them."""

    name: str
    hooks: Sequence[Json]
    asks: Sequence[Ask] = ()
    is_mutating: bool = False
    before: Sequence[Ask] = ()

    @property
    def namespace(self) -> str:
        return f"w-{self.name}"

    def configuration(self, url: str) -> Ask:
        kind = "Mutating" if self.is_mutating else "Validating"
        webhooks: list[Json] = []
        for index, given in enumerate(self.hooks):
            config = {
                "url": url + given["path"],
                "caBundle": base64.b64encode(loopback_tls().authority).decode(),
            }
            named = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
            webhook = {
                "name": f"h{index}.{self.name}.example.com",
                "clientConfig": config | given.get("config", {}),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "namespaceSelector": named,
                "rules": [rule("", "v1", ["configmaps"], ["CREATE"])],
            }
            more = {k: v for k, v in given.items() if k not in ("path", "config")}
            webhooks.append(webhook | more)
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"w-{self.name}"},
            "webhooks": webhooks,
        }
        return Ask("POST", f"{ADMISSION}/{kind.lower()}webhookconfigurations", body)


def on(
    *operations: str, resource: str = "configmaps", group: str = "", version: str = "v1"
) -> Json:
    return {"rules": [rule(group, version, [resource], list(operations))]}


OLD_MAP: Final = (new("old"),)
WEB: Final = (Ask("POST", DEPLOYMENTS, deployment()),)
NEVER_THERE: Final = {"config": {"url": "https://127.0.0.1:1/x"}}

WEBHOOKS: Final[Sequence[WebhookCase]] = (
    WebhookCase("allow", [hook("/allow")], [new()]),
    WebhookCase("deny", [hook("/deny")], [new()]),
    WebhookCase("deny-message", [hook("/deny-message")], [new()]),
    WebhookCase("deny-reason", [hook("/deny-reason")], [new()]),
    WebhookCase("deny-code", [hook("/deny-code")], [new()]),
    WebhookCase("deny-success", [hook("/deny-success")], [new()]),
    WebhookCase("warn", [hook("/warn")], [new()]),
    WebhookCase("several", [hook("/allow"), hook("/deny-message")], [new()]),
    WebhookCase("beta", [hook("/wrong-uid", admissionReviewVersions=["v1beta1"])], [new()]),
    WebhookCase("future", [hook("/allow", admissionReviewVersions=["v9", "v1"])], [new()]),
    # -- lies
    WebhookCase("wrong-uid", [hook("/wrong-uid")], [new()]),
    WebhookCase("wrong-kind", [hook("/wrong-kind")], [new()]),
    WebhookCase("absent", [hook("/absent")], [new()]),
    WebhookCase("patch-in-validation", [hook("/add-b")], [new()]),
    WebhookCase("absent-ignored", [hook("/absent", failurePolicy="Ignore")], [new()]),
    # -- silence
    WebhookCase("slow", [hook("/slow", timeoutSeconds=1)], [new()]),
    WebhookCase("slow-ignored", [hook("/slow", timeoutSeconds=1, failurePolicy="Ignore")], [new()]),
    WebhookCase("dead", [hook("/", **NEVER_THERE)], [new()]),
    WebhookCase("dead-ignored", [hook("/", failurePolicy="Ignore", **NEVER_THERE)], [new()]),
    # -- matching
    WebhookCase(
        "condition",
        [
            hook(
                "/deny",
                matchConditions=[{"name": "n", "expression": "object.metadata.name == 'n'"}],
            )
        ],
        [new(), new("n")],
    ),
    WebhookCase(
        "condition-fails",
        [hook("/deny", matchConditions=[{"name": "n", "expression": "object.data.none == ''"}])],
        [new()],
    ),
    WebhookCase(
        "condition-ignored",
        [
            hook(
                "/deny",
                failurePolicy="Ignore",
                matchConditions=[{"name": "n", "expression": "object.data.none == ''"}],
            )
        ],
        [new()],
    ),
    WebhookCase(
        "objects",
        [hook("/deny", objectSelector={"matchLabels": {"tier": "gold"}})],
        [new(), new("n", labels={"tier": "gold"})],
    ),
    WebhookCase(
        "update",
        [hook("/deny", **on("UPDATE"))],
        [Ask("PATCH", f"{MAPS}/old?fieldManager=me", {"data": {"b": "2"}}, MERGE)],
        before=OLD_MAP,
    ),
    WebhookCase(
        "delete",
        [hook("/deny", **on("DELETE"))],
        [Ask("DELETE", f"{MAPS}/old?propagationPolicy=Background")],
        before=OLD_MAP,
    ),
    WebhookCase("dry-run", [hook("/deny")], [new(query="?dryRun=All")]),
    WebhookCase(
        "status",
        [hook("/deny", **on("UPDATE", resource="deployments/status", group="apps"))],
        [Ask("PATCH", f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 1}}, MERGE)],
        before=WEB,
    ),
    # -- changes
    WebhookCase(
        "change", [hook("/add-b")], [new(), new("n", query="?dryRun=All")], is_mutating=True
    ),
    WebhookCase("changes", [hook("/add-b"), hook("/add-c")], [new()], is_mutating=True),
    WebhookCase("change-label", [hook("/label")], [new()], is_mutating=True),
    WebhookCase(
        "again",
        [hook("/idempotent", reinvocationPolicy="IfNeeded"), hook("/add-b")],
        [new()],
        is_mutating=True,
    ),
    WebhookCase("not-again", [hook("/idempotent"), hook("/add-b")], [new()], is_mutating=True),
    WebhookCase(
        "change-denied", [hook("/add-b"), hook("/deny-message")], [new()], is_mutating=True
    ),
    WebhookCase("no-type", [hook("/no-type")], [new()], is_mutating=True),
    WebhookCase("type-alone", [hook("/type-alone")], [new()], is_mutating=True),
    WebhookCase(
        "change-ignored",
        [hook("/absent", failurePolicy="Ignore"), hook("/add-b")],
        [new()],
        is_mutating=True,
    ),
    WebhookCase("change-slow", [hook("/slow", timeoutSeconds=1)], [new()], is_mutating=True),
    WebhookCase("elsewhere", [hook("/elsewhere")], [new()], is_mutating=True),
    WebhookCase(
        "change-delete",
        [hook("/add-b", **on("DELETE"))],
        [Ask("DELETE", f"{MAPS}/old")],
        is_mutating=True,
        before=OLD_MAP,
    ),
    WebhookCase(
        "generation",
        [hook("/replicas", **on("UPDATE", resource="deployments", group="apps"))],
        [Ask("PATCH", f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE)],
        is_mutating=True,
        before=WEB,
    ),
    WebhookCase(
        "scale",
        [hook("/to-scale", **on("UPDATE", resource="deployments/scale", group="apps"))],
        [Ask("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 3}}, MERGE)],
        is_mutating=True,
        before=WEB,
    ),
    WebhookCase("nothing-there", [hook("/nothing-there")], [new()], is_mutating=True),
    WebhookCase("no-patch", [hook("/no-patch")], [new()], is_mutating=True),
    WebhookCase("unknown-field", [hook("/unknown-field")], [new()], is_mutating=True),
    # -- refused configurations
    WebhookCase(
        "bad-condition", [hook("/x", matchConditions=[{"name": "a", "expression": "objct"}])]
    ),
    WebhookCase("bad-effects", [hook("/x", sideEffects="Some")]),
    WebhookCase("bad-timeout", [hook("/x", timeoutSeconds=31)]),
)


async def play(connection: Connection, cases: Sequence[WebhookCase]) -> Mapping[str, Json]:
    """Return every answer of a server to the cases, and what it sent to their webhooks."""
    async with webhook_server() as server:
        answers: dict[str, Json] = {}
        for case in cases:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}}
            await ask_of(connection, Ask("POST", "/api/v1/namespaces", space), case.namespace)
            for each in case.before:
                assert (await ask_of(connection, each, case.namespace))["code"] == 201
        for case in cases:
            said = await ask_of(connection, case.configuration(server.url), case.namespace)
            answers[case.name] = {"configuration": said, "answers": []}
        for is_mutating in (False, True):
            await _until_in_force(connection, server, is_mutating)
        for case in cases:
            for each in case.asks:
                said = await ask_of(connection, each, case.namespace)
                answers[case.name]["answers"].append(said)
            reviews = server.reviews.get(case.namespace, [])
            if not case.is_mutating:  # those are called all at once
                reviews.sort(key=lambda each: str(each["path"]))
            answers[case.name]["reviews"] = reviews
        port = server.url.rpartition(":")[2]
        text = json.dumps(answers).replace(port, "PORT")
        return json.loads(_UUID.sub("UID", text))


async def _until_in_force(connection: Connection, server: WebhookServer, is_mutating: bool) -> None:
    case = WebhookCase("marker-m" if is_mutating else "marker", [hook("/deny")], (), is_mutating)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}}
    await ask_of(connection, Ask("POST", "/api/v1/namespaces", space), case.namespace)
    await ask_of(connection, case.configuration(server.url), case.namespace)
    for _ in range(_TRIES):
        said = await ask_of(connection, new("probe", query="?dryRun=All"), case.namespace)
        if said["code"] == 400:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the webhook of {case.name} is never called")
