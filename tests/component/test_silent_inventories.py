"""A member that falls silent while it is being looked at is not believed well."""

import asyncio

import pytest
from aiohttp import web
from tests.component.fake_clusters import asked_by

from clusterspace.client.discovery import Discovery
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.membership import health, status


async def test_a_member_that_falls_silent_during_a_look_is_seen_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "_PROBE_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.2)
    probes = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal probes
        if request.path == "/readyz":
            probes += 1
            if probes == 1:
                return web.Response(text="ok")
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with asked_by(answer) as connection, asyncio.timeout(20):
        report = await status.collect(ClusterClient(connection), Discovery(connection))

    assert not report.health.is_ready
    assert report.inventory is None
