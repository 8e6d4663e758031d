"""Clients that leave HTTP behind, on connections to the fleet API server opened by hand."""

import asyncio
import ssl
from urllib.parse import urlsplit

from tests.component.gateway.fleet_site import ROOT, Site
from tests.component.sim_clients import PATIENCE, Connection, SpdyClient, WebSocketClient

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
PORT_FORWARD = "portforward.k8s.io"
WEB_SOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
    "Sec-WebSocket-Version: 13",
)
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0")


async def ask(
    site: Site, method: str, target: str, *headers: str, token: str = ROOT
) -> tuple[int, Connection]:
    """Send a request head on a new connection and read the head of the answer."""
    place = urlsplit(site.url)
    authority = site.directory / site.data_name / "pki" / "ca.crt"
    trust = ssl.create_default_context(cafile=str(authority))
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=trust)
    lines = (
        f"{method} {target} HTTP/1.1",
        f"Host: {place.netloc}",
        f"Authorization: Bearer {token}",
        *headers,
        "",
        "",
    )
    writer.write("\r\n".join(lines).encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    first, *rest = head.decode().strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    found = {name.lower(): value for name, value in pairs}
    return int(first.split()[1]), Connection(reader, writer, found)


async def web_socket(site: Site, target: str, protocol: str) -> WebSocketClient:
    """Open a WebSocket."""
    offered = (f"Sec-WebSocket-Protocol: {protocol}",) if protocol else ()
    status, connection = await ask(site, "GET", target, *WEB_SOCKET, *offered)
    assert status == 101, await connection.reader.read(10_000)
    assert connection.headers.get("sec-websocket-protocol", "") == protocol
    return WebSocketClient(connection)


async def spdy(site: Site, target: str, *protocols: str) -> SpdyClient:
    """Open a SPDY connection; the server takes the first protocol offered."""
    offered = [f"X-Stream-Protocol-Version: {protocol}" for protocol in protocols]
    status, connection = await ask(site, "POST", target, *SPDY, *offered)
    assert status == 101, await connection.reader.read(10_000)
    assert connection.headers["x-stream-protocol-version"] in protocols
    return SpdyClient(connection)
