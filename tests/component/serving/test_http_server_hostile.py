"""What strangers send: each request is refused or handled once, and the server goes on."""

import random

import msgspec
import pytest
from tests.component.serving.wire import Pki, RawClient, Running, chunked, get, request, running
from tests.unit.apiserver.http.hostile_requests import hostile_requests

from clusterspace.apiserver.http.messages import Request, Response

FUZZ_ROUNDS = 300


class Ledger:
    """A handler that writes down what it was asked, once it has the whole of it."""

    def __init__(self) -> None:
        self.handled: list[str] = []

    async def __call__(self, asked: Request) -> Response:
        await asked.read_body(limit=100_000)
        self.handled.append(asked.path)
        return Response(200, (), asked.path.encode())


async def converse(run: Running, raw: bytes) -> bytes:
    """Send everything, close our half, and return all that comes back."""
    client = await run.client()
    try:
        client.writer.write(raw)
        if client.writer.can_write_eof():
            client.writer.write_eof()
        return await client.rest()
    except ConnectionError:
        return b""
    finally:
        client.close()


async def test_a_hostile_request_gets_one_refusal_and_nothing_behind_it_is_handled() -> None:
    ledger = Ledger()
    accepted: dict[str, bytes] = {}
    async with running(ledger) as run:
        for hostile in hostile_requests():
            received = await converse(run, hostile.raw)
            if not _is_one_refusal(received):
                accepted[hostile.name] = received

    assert accepted == {}
    assert ledger.handled == []


def _is_one_refusal(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = dict(each.split(": ", 1) for each in lines)
    code = int(line.split(" ")[1])
    return (
        400 <= code <= 505
        and headers["Connection"] == "close"
        and int(headers["Content-Length"]) == len(body)
        and msgspec.json.decode(body)["code"] == code
    )


async def test_unusual_but_unambiguous_requests_are_handled_once() -> None:
    body = b"abc"
    unusual = [
        get("//double//slash"),
        get("/a;b=c?d=e&f"),
        get("/%00%2e%2e%2f"),
        get("/", "X:"),
        get("/", "X:\t y \t"),
        get("/", "X-Ünicode-Value: ok".replace("Ü", "U"), "Y: ü"),
        get("/", "Content-Length: 0"),
        get("/", "Content-Encoding: identity"),
        get("/", "Connection: keep-alive"),
        get("/", "Upgrade: websocket"),
        b"GET / HTTP/1.1\r\nHost: [::1]:6443\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        request("GET", "/", body=body),
        request("DELETE", "/", body=body),
        request("POST", "/", "Content-Length: 003") + body,
        request("POST", "/", "TRANSFER-encoding: ChUnKeD") + b'3;a=b;c="d"\r\nabc\r\n00\r\n\r\n',
        chunked("/", *[b"x"] * 1000),
    ]
    ledger = Ledger()
    async with running(ledger) as run:
        for raw in unusual:
            ledger.handled.clear()
            received = await converse(run, raw)
            assert (received[9:12], len(ledger.handled)) == (b"200", 1), raw


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_random_bytes_do_not_disturb_the_server(pki: Pki, over_tls: bool) -> None:
    chance = random.Random(20261)
    seeds = [each.raw for each in hostile_requests()]
    ledger = Ledger()
    async with running(ledger, pki=pki if over_tls else None) as run:
        bystander = await run.client()
        for _ in range(FUZZ_ROUNDS // 4 if over_tls else FUZZ_ROUNDS):
            client = await run.client()
            client.writer.write(_mutated(chance, chance.choice(seeds)))
            await _leave(client, chance)
        assert (await bystander.ask(get("/still-here"))).body == b"/still-here"
        assert (await run.ask(chunked("/and-new", b"x"))).body == b"/and-new"

    assert ledger.handled[-2:] == ["/still-here", "/and-new"]


def _mutated(chance: random.Random, seed: bytes) -> bytes:
    raw = bytearray(seed)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(raw) + 1)
        match chance.randrange(4):
            case 0:
                raw[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del raw[place : place + chance.randrange(1, 30)]
            case 2:
                raw[place:place] = chance.randbytes(chance.randrange(1, 200))
            case _:
                raw[place:place] = chance.choice((b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"\n", b" "))
    return bytes(raw)


async def _leave(client: RawClient, chance: random.Random) -> None:
    if chance.random() < 0.3:
        client.vanish()
        return
    if client.writer.can_write_eof():
        client.writer.write_eof()
        await client.rest()
    client.close()
