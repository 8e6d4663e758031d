"""A webhook that interprets, as somebody might run one: it says what a test wants it to."""

import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from clusterspace.apis.interpreters import InterpreterWebhook, read_webhooks
from clusterspace.kube.objects import Object
from clusterspace.testing.certificates import loopback_tls


class Answerer:
    """It answers what `says` returns, and remembers what it was asked."""

    def __init__(self, kind: str) -> None:
        self.url = ""
        self.kind = kind
        self.asked: list[Object] = []
        self.says: Callable[[Object], Object] = lambda _: {}

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one question."""
        context = await request.json()
        self.asked.append(context)
        said = {"uid": context["request"]["uid"], "successful": True, **self.says(context)}
        return web.json_response({**context, "request": None, "response": said})

    @property
    def configuration(self) -> Object:
        """What tells the hub of it."""
        authority = base64.b64encode(loopback_tls().authority).decode()
        rule = {
            "operations": ["*"],
            "apiGroups": ["shop.example.com"],
            "apiVersions": ["v1"],
            "kinds": [self.kind],
        }
        hook = {
            "name": "sites.shop.example.com",
            "rules": [rule],
            "clientConfig": {"url": self.url, "caBundle": authority},
            "interpreterContextVersions": ["v1alpha1"],
            "timeoutSeconds": 5,
        }
        return {
            "apiVersion": "config.karmada.io/v1alpha1",
            "kind": "ResourceInterpreterWebhookConfiguration",
            "metadata": {"name": "sites"},
            "webhooks": [hook],
        }

    @property
    def webhook(self) -> InterpreterWebhook:
        """The webhook of that configuration."""
        return read_webhooks([self.configuration])[0]


@asynccontextmanager
async def running_answerer(kind: str = "Site") -> AsyncGenerator[Answerer]:
    """Run one on loopback."""
    made = Answerer(kind)
    app = web.Application()
    app.router.add_post("/interpret", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=loopback_tls().context)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"https://{host}:{port}/interpret"
    try:
        yield made
    finally:
        await runner.cleanup()


def patched(*operations: Object) -> Object:
    """Return an answer that changes the object it was asked about."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"patch": patch, "patchType": "JSONPatch"}
