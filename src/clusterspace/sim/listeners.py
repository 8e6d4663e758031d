"""What listens on the ports of a simulated pod: it answers HTTP, and echoes everything else."""

from typing import Final

from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.sim.pod_states import containers_of
from clusterspace.sim.streams.port_forwards import Tunnel

_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ")
_HEAD_LIMIT: Final = 64 * 1024


class PodListeners:
    """The listeners of one pod: on the ports it declares, or on any when it declares none."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod
        self._ports = frozenset(
            int(port["containerPort"])
            for container in containers_of(pod)
            for port in container.get("ports") or ()
        )

    def refusal(self, port: int) -> str:
        """Return why nothing can be reached at a port."""
        if not self._ports or port in self._ports:
            return ""
        return (
            f"an error occurred forwarding {port} -> {port}: pod {name_of(self._pod)} "
            f"listens on {sorted(self._ports)} only: connection refused"
        )

    async def serve(self, port: int, tunnel: Tunnel) -> None:
        """Answer one connection: HTTP requests with a page, anything else with itself."""
        data = await tunnel.read()
        if not data.startswith(_METHODS):
            while data:
                await tunnel.write(data)
                data = await tunnel.read()
            return
        while data:
            data = await self._answer_http(port, data, tunnel)

    async def _answer_http(self, port: int, data: bytes, tunnel: Tunnel) -> bytes:
        """Answer one request; return what has arrived of the next, nothing at the end."""
        while b"\r\n\r\n" not in data:
            more = await tunnel.read()
            if not more or len(data) > _HEAD_LIMIT:
                return b""
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        left = _content_length(head) - len(rest)
        while left > 0:
            more = await tunnel.read()
            if not more:
                return b""
            rest, left = more, left - len(more)
        await tunnel.write(self._page(port, head))
        if b"connection: close" in head.lower():
            return b""
        following = rest[len(rest) + left :] if left < 0 else b""
        return following or await tunnel.read()

    def _page(self, port: int, head: bytes) -> bytes:
        method, _, target = head.split(b"\r\n")[0].decode("latin-1").partition(" ")
        path = target.partition(" ")[0]
        text = f"{namespace_of(self._pod)}/{name_of(self._pod)}:{port} {method} {path}\n".encode()
        lines = (
            "HTTP/1.1 200 OK",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(text)}",
            "",
            "",
        )
        return "\r\n".join(lines).encode() + (b"" if method == "HEAD" else text)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0
