"""The server's end of TLS: our certificate, whose we accept, and a new one without a restart."""

import asyncio.sslproto
import ssl
from collections.abc import Sequence
from pathlib import Path

_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else to begin with."""

_ASYNCIO_READ_BUFFER = 16 * 1024


def server_context(
    certificate: Path,
    key: Path,
    *,
    client_authorities: Sequence[Path] = (),
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> ssl.SSLContext:
    """Return a context for a server.

    A client may present a certificate. One that is not signed by `client_authorities` fails the
    handshake: it would otherwise look as if none had been presented.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum_version
    context.set_ciphers(_TLS12_CIPHERS)
    # HTTP/2 would bring nothing for exec and port-forward, and a second protocol to defend.
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(certificate, key)
    if client_authorities:
        context.verify_mode = ssl.CERT_OPTIONAL
        for authority in client_authorities:
            context.load_verify_locations(authority)
    return context


def reload_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a new certificate from the next handshake on; open connections keep theirs.

    A pair that does not fit raises ssl.SSLError and changes nothing. It is tried elsewhere first:
    a live context would be left with the new certificate and the old key.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    context.load_cert_chain(certificate, key)


def shrink_asyncio_buffers() -> None:
    """Let asyncio's own TLS use 16 KiB a connection instead of 256 KiB; uvloop has no need of it.

    One TLS record is at most 16 KiB, so nothing is lost but the memory.
    """
    asyncio.sslproto.SSLProtocol.max_size = _ASYNCIO_READ_BUFFER
