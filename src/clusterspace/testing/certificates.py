"""TLS for servers that live as long as a test: members are spoken to over nothing else."""

import ssl
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.client.settings import Pem, Trust


@dataclass(frozen=True, slots=True)
class LoopbackTls:
    """A server's end of TLS on this machine, and whom its clients have to trust."""

    context: ssl.SSLContext
    authority: bytes

    @property
    def trust(self) -> Trust:
        """How a client knows such a server."""
        return Trust(Pem(self.authority))


@cache
def loopback_tls() -> LoopbackTls:
    """Return a certificate for 127.0.0.1 and localhost, the same for the whole run."""
    now = SystemClock().now()
    authority = Authority.create("tests", now)
    pair = authority.issue_server(("127.0.0.1", "::1", "localhost"), now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    return LoopbackTls(context, authority.pair.certificate)
