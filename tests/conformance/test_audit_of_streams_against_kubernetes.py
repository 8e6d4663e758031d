"""Shells, ports and logs in the audit log: our fleet address's events and kube-apiserver's.

kube-apiserver leads into a pod by way of its kubelet, so there is one here that answers as little
as it takes: it leaves HTTP where it is asked to, and has one line of logs. The fleet address leads
into the pod of a simulated member. Where kube-apiserver is found, what it wrote is held against the
recording; ours is held against the recording everywhere. `RECORD=1` writes it anew.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.component.audit_lines import wait_written
from tests.component.gateway.fleet_site import ROOT, fleet_site
from tests.component.gateway.stream_clients import PORT_FORWARD, SPDY, V4, V5, WEB_SOCKET

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import PODS, pod
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.hubs import client_for_test, find_real_kubernetes, real_server_for_test
from clusterspace.testing.steps import until

NODES = GroupVersionResource("", "v1", "nodes")
RECORDED = Path(__file__).parents[1] / "corpus" / "audit-stream-events.json"
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Request, resources: [{group: "", resources: [pods/*]}]}
- {level: None}
"""
TOKENS = f'{ROOT},root,root,"system:masters"\njane-token,jane,jane,"devs"\n'
PATIENCE = 30
COMMAND = "exec?stdout=true&command=echo&command=hi"
SPEAKS_V4 = (*SPDY, f"X-Stream-Protocol-Version: {V4}")

ASKED: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # by name: method, pod, what of it, headers
    "exec": ("POST", "web", COMMAND, SPEAKS_V4),
    "exec-get": ("GET", "web", COMMAND, SPEAKS_V4),
    "exec-websocket": ("GET", "web", COMMAND, (*WEB_SOCKET, f"Sec-WebSocket-Protocol: {V5}")),
    "exec-missing": ("POST", "none", COMMAND, SPEAKS_V4),
    "exec-no-container": ("POST", "web", f"{COMMAND}&container=none", SPEAKS_V4),
    "attach": ("POST", "web", "attach?stdout=true", SPEAKS_V4),
    "portforward": (
        "POST",
        "web",
        "portforward",
        (*SPDY, f"X-Stream-Protocol-Version: {PORT_FORWARD}"),
    ),
    "portforward-missing": ("POST", "none", "portforward", SPEAKS_V4),
    "log": ("GET", "web", "log", ()),
    "log-follow": ("GET", "web", "log?follow=true&tailLines=1", ()),
    "log-missing": ("GET", "none", "log", ()),
}
DIFFERENT = {
    # At the fleet address a stream takes the right to create, whatever its method, and rules of
    # policies about `create` see all of them: kube-apiserver lets a WebSocket pass as a `get`.
    name: {"verb": "create"}
    for name in ("exec-get", "exec-websocket", "exec-websocket-forbidden")
}
FORBIDDEN = ("exec", "exec-websocket", "attach", "portforward", "log")


async def ask(url: str, method: str, path: str, token: str, name: str, *headers: str) -> int:
    """Ask for something that may be a stream, and hang up once it has begun or is over."""
    place, tls = urlsplit(url), ssl._create_unverified_context()
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=tls)
    who = (f"Host: {place.netloc}", f"Authorization: Bearer {token}", f"Audit-ID: ask-{name}")
    writer.write("\r\n".join((f"{method} {path} HTTP/1.1", *who, *headers, "", "")).encode())
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        code = int(head.split()[1])
        if code == 200:
            await reader.readuntil(b"\n")  # of a log that is followed, its first line
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    return code


async def ask_all(url: str, log: Path, pod_name: Callable[[str], str]) -> dict[str, list[Any]]:
    """Ask everything, as who may and as who may not; return the events of each request."""
    names: list[str] = []
    for name, (method, which, rest, headers) in ASKED.items():
        path = f"/api/v1/namespaces/default/pods/{pod_name(which)}/{rest}"
        names.append(name)
        await ask(url, method, path, ROOT, name, *headers)
        if name in FORBIDDEN:
            names.append(f"{name}-forbidden")
            await ask(url, method, path, "jane-token", names[-1], *headers)

    def found() -> dict[str, list[Any]]:
        wait_written()
        events: dict[str, list[Any]] = {name: [] for name in names}
        for event in map(json.loads, log.read_bytes().splitlines()):
            name = event["auditID"].removeprefix("ask-")
            if name in events:
                events[name].append(comparable(event))
        return events

    await until(
        lambda: all(each and each[-1]["stage"] != "ResponseStarted" for each in found().values())
    )
    return found()


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """Return what a stage says of a request, whatever the pod is called there.

    Who decided is not compared: at the fleet address it is the member, whose own log says it.
    """
    reference = event["objectRef"]
    return {
        "stage": event["stage"],
        "level": event["level"],
        "verb": event["verb"],
        "requestURI": event["requestURI"].replace(".clusterspace.west", ""),
        "resource": (reference["resource"], reference["subresource"]),
        "name": reference["name"].replace(".clusterspace.west", ""),
        "code": event.get("responseStatus", {}).get("code"),
        "has_bodies": "requestObject" in event or "responseObject" in event,
    }


# -- theirs ----------------------------------------------------------------------------------------


@asynccontextmanager
async def kubelet() -> AsyncGenerator[int]:
    """Serve as a kubelet whose containers say one line; yield the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if "upgrade: spdy/3.1" in head:
                spoken = head.partition("x-stream-protocol-version: ")[2].partition("\r\n")[0]
                writer.write(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                    f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {spoken}\r\n\r\n".encode()
                )
                await reader.read()
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
                writer.write(b"Connection: close\r\n\r\nhello\n")
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=loopback_tls().context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def kubernetes_events(directory: Path) -> dict[str, list[Any]]:
    policy, log = directory / "policy.yaml", directory / "audit.log"
    policy.write_text(POLICY)
    flags = (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    async with (
        kubelet() as port,
        real_server_for_test(directory, *flags, tokens=TOKENS) as real,
        client_for_test(real.settings) as client,
    ):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        made = await client.create(ResourcePath(NODES), node)
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoints = {"kubeletEndpoint": {"Port": port}}
        made["status"] = {"addresses": addresses, "daemonEndpoints": endpoints}
        await client.update(ResourcePath(NODES, "", "n", "status"), made)
        runs = pod("web")
        runs["spec"] = {**runs["spec"], "nodeName": "n"}
        runs["metadata"] = {**runs["metadata"], "namespace": "default"}
        made = await client.create(ResourcePath(PODS, "default"), runs)
        made["status"] = {"phase": "Running"}
        await client.update(ResourcePath(PODS, "default", "web", "status"), made)
        return await ask_all(real.settings.server, log, lambda name: name)


@pytest.mark.slow
@pytest.mark.skipif(find_real_kubernetes() is None, reason="no kube-apiserver and etcd")
async def test_the_recorded_streams_are_what_kubernetes_writes(tmp_path: Path) -> None:
    theirs = json.loads(json.dumps(await kubernetes_events(tmp_path)))
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(theirs, indent=1, sort_keys=True) + "\n")

    assert theirs == json.loads(RECORDED.read_bytes())


# -- ours ------------------------------------------------------------------------------------------


async def test_our_events_of_streams_are_those_that_kubernetes_wrote(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    async with fleet_site(tmp_path, members=(), sims=("west",), audit_policy_file=policy) as site:
        west = site.members["west"].client
        await west.create(ResourcePath(PODS, "default"), pod("web"))

        async def is_running() -> bool:
            found = await west.get(ResourcePath(PODS, "default", "web"))
            return find_at(found, "status", "phase") == "Running"

        await until(is_running)
        log = tmp_path / "fleet" / "audit.log"
        ours = await ask_all(site.url, log, lambda name: f"{name}.clusterspace.west")

    recorded = json.loads(RECORDED.read_bytes())
    ours = json.loads(json.dumps(ours))
    assert ours.keys() == recorded.keys()
    for name, events in recorded.items():
        assert ours[name] == [{**each, **DIFFERENT.get(name, {})} for each in events], name
