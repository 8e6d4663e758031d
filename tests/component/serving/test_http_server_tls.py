"""TLS: who the client is, who we are, and what neither side may talk us into."""

import asyncio
import socket
import ssl
import warnings
from pathlib import Path

import pytest
from tests.component.serving.certificates import Authority
from tests.component.serving.wire import Counter, Pki, Running, echo, get, running

from clusterspace.apiserver.http.listener import reload_certificate, server_context
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.testing.steps import until


async def show_certificate(asked: Request) -> Response:
    return Response(200, (), asked.peer_certificate or b"none")


async def test_a_handler_sees_the_certificate_of_its_client(pki: Pki) -> None:
    async with running(show_certificate, pki=pki) as run:
        as_alice = await run.client(pki.client_context("alice"))
        seen = [(await as_alice.ask(get())).body for _ in range(2)]
        nobody = await run.ask(get())

    assert seen == [pki.alice, pki.alice]
    assert nobody.body == b"none"


async def test_without_tls_there_is_no_certificate() -> None:
    async with running(show_certificate) as run:
        assert (await run.ask(get())).body == b"none"


async def test_a_certificate_of_a_stranger_is_refused_and_not_mistaken_for_none(pki: Pki) -> None:
    counter = Counter()
    async with running(show_certificate, pki=pki, observer=counter) as run:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await (await run.client(pki.client_context("mallory"))).ask(get())
        await until(lambda: counter.handshakes_failed == 1)


async def test_a_resumed_session_still_knows_its_client(pki: Pki) -> None:
    context = pki.client_context("alice")
    async with running(show_certificate, pki=pki) as run:
        first = await asyncio.to_thread(_ask_blocking, run, context, None)
        second = await asyncio.to_thread(_ask_blocking, run, context, first[1])

    assert second[2], "the session was not resumed"
    assert first[0].endswith(pki.alice)
    assert second[0].endswith(pki.alice)


def _ask_blocking(
    run: Running, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bytes, ssl.SSLSession | None, bool]:
    with (
        socket.create_connection((run.host, run.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secure,
    ):
        secure.sendall(get("/", "Connection: close"))
        received = b""
        while data := secure.recv(65536):
            received += data
        return received, secure.session, bool(secure.session_reused)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_protocol_versions_are_refused(pki: Pki, version: ssl.TLSVersion) -> None:
    context = pki.client_context()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    counter = Counter()
    async with running(echo, pki=pki, observer=counter) as run:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await run.client(context)
        await until(lambda: counter.handshakes_failed == 1)
        assert (await run.ask(get())).status == 200


async def test_tls_1_2_and_1_3_are_spoken_and_http_1_1_is_negotiated(pki: Pki) -> None:
    negotiated: list[tuple[str | None, str | None]] = []
    async with running(echo, pki=pki) as run:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = pki.client_context()
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            client = await run.client(context)
            assert (await client.ask(get())).status == 200
            tls = client.writer.get_extra_info("ssl_object")
            negotiated.append((tls.version(), tls.selected_alpn_protocol()))

    assert negotiated == [("TLSv1.2", "http/1.1"), ("TLSv1.3", "http/1.1")]


async def test_ciphers_without_forward_secrecy_are_refused(pki: Pki) -> None:
    context = pki.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA256:AES256-SHA:ECDHE-ECDSA-AES128-SHA256")
    async with running(echo, pki=pki) as run:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await run.client(context)


async def test_plain_http_on_the_tls_port_disturbs_nobody(pki: Pki) -> None:
    counter = Counter()
    async with running(echo, pki=pki, observer=counter) as run:
        for junk in (get(), b"\x16\x03\x01\x00\x05hello", b"\x00" * 4000, b""):
            reader, writer = await asyncio.open_connection(run.host, run.port)
            writer.write(junk)
            if not junk:
                writer.transport.abort()
            else:
                assert not (await reader.read()).startswith(b"HTTP")
            writer.close()
        await until(lambda: counter.handshakes_failed == 4)
        assert run.server.connection_count == 0
        assert (await run.ask(get())).status == 200


async def test_a_new_certificate_is_used_without_a_restart(pki: Pki) -> None:
    context = pki.server_context()
    renewed = (pki.directory / "renewed.crt", pki.directory / "renewed.key")
    async with running(echo, tls=context, client_tls=pki.client_context()) as run:
        before = await run.client()
        await before.ask(get())
        reload_certificate(context, *renewed)
        after = await run.client()
        still = await before.ask(get())
        presented = [_presented(each) for each in (before.writer, after.writer)]

    expected = [_der(pki.directory / "server.crt"), _der(renewed[0])]
    assert presented == expected
    assert still.status == 200


async def test_a_pair_that_does_not_fit_changes_nothing(pki: Pki) -> None:
    context = pki.server_context()
    async with running(echo, tls=context, client_tls=pki.client_context()) as run:
        with pytest.raises(ssl.SSLError):
            reload_certificate(context, pki.directory / "renewed.crt", pki.directory / "server.key")
        client = await run.client()
        assert (await client.ask(get())).status == 200
        assert _presented(client.writer) == _der(pki.directory / "server.crt")


async def test_a_minimum_of_tls_1_3_can_be_asked_for(pki: Pki) -> None:
    context = server_context(
        pki.directory / "server.crt",
        pki.directory / "server.key",
        minimum_version=ssl.TLSVersion.TLSv1_3,
    )
    old = pki.client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running(echo, tls=context, client_tls=pki.client_context()) as run:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await run.client(old)
        assert (await run.ask(get())).status == 200


async def test_a_certificate_that_cannot_be_read_is_an_error_at_the_start(tmp_path: Path) -> None:
    Authority(tmp_path).issue("server", host="127.0.0.1")
    (tmp_path / "server.crt").write_text("not a certificate")
    with pytest.raises(ssl.SSLError):
        server_context(tmp_path / "server.crt", tmp_path / "server.key")


def _presented(writer: asyncio.StreamWriter) -> bytes:
    return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())
