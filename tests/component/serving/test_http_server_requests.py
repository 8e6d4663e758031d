"""Ordinary requests: what a well-behaved client may count on."""

import asyncio
import email.utils
import hashlib

import msgspec
import pytest
from tests.component.serving.wire import (
    LoggedErrors,
    Pki,
    chunked,
    echo,
    get,
    quick,
    request,
    running,
    turns,
    until_still,
)

from clusterspace.apiserver.http import protocol
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.errors import ApiError, NotFound
from clusterspace.testing.steps import until

MIB = 1024 * 1024


async def digest(asked: Request) -> Response:
    body = await asked.read_body(limit=3 * MIB)
    return Response(200, (), hashlib.sha256(body).hexdigest().encode())


async def test_a_connection_serves_many_requests() -> None:
    async with running(echo) as run:
        client = await run.client()
        answers = [await client.ask(get(f"/{number}")) for number in range(50)]

    targets = [msgspec.json.decode(each.body)["target"] for each in answers]
    assert targets == [f"/{number}" for number in range(50)]
    assert all("connection" not in each.headers for each in answers)


async def test_pipelined_answers_come_in_order_even_when_the_first_takes_longest() -> None:
    all_sent = asyncio.Event()

    async def slow_first(asked: Request) -> Response:
        if asked.path == "/0":
            await all_sent.wait()
            await turns()
        return Response(200, (), asked.path.encode())

    async with running(slow_first) as run:
        client = await run.client()
        await client.send(b"".join(get(f"/{number}") for number in range(500)))
        all_sent.set()
        bodies = [(await client.answer()).body for _ in range(500)]

    assert bodies == [b"/%d" % number for number in range(500)]


async def test_pipelined_requests_with_bodies_of_both_kinds_keep_their_borders() -> None:
    raw = b"".join(
        request("POST", f"/{n}", body=b"GET /x HTTP/1.1\r\n\r\n")
        + chunked(f"/c{n}", b"\r\n\r\n", b"0")
        for n in range(20)
    )
    async with running(echo) as run:
        client = await run.client()
        await client.send(raw)
        seen = [msgspec.json.decode((await client.answer()).body) for _ in range(40)]

    assert [each["target"] for each in seen[:4]] == ["/0", "/c0", "/1", "/c1"]
    assert {each["bytes"] for each in seen[0::2]} == {19}
    assert {each["bytes"] for each in seen[1::2]} == {5}


async def test_a_request_may_arrive_byte_by_byte() -> None:
    async with running(echo) as run:
        client = await run.client()
        for byte in chunked("/drip", b"one", b"\r\n\r\n"):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        answer = await client.answer()

    assert msgspec.json.decode(answer.body) == {"method": "POST", "target": "/drip", "bytes": 7}


async def test_headers_keep_their_order_and_may_repeat() -> None:
    async def show(asked: Request) -> Response:
        groups = asked.headers.get_all("Impersonate-Group")
        return Response(200, (), msgspec.json.encode([groups, asked.headers.get("x-absent")]))

    async with running(show) as run:
        answer = await run.ask(
            get("/", "impersonate-GROUP: a", "X: y", "Impersonate-Group:  jörg \t")
        )

    assert msgspec.json.decode(answer.body) == [["a", "jörg"], None]


async def test_path_and_query_are_handed_over_undecoded() -> None:
    async def show(asked: Request) -> Response:
        return Response(200, (), f"{asked.path}|{asked.query}|{asked.target.decode()}".encode())

    async with running(show) as run:
        answer = await run.ask(get("/a%2Fb/../c?x=%20&y?"))

    assert answer.body == b"/a%2Fb/../c|x=%20&y?|/a%2Fb/../c?x=%20&y?"


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_large_bodies_pass_both_ways(pki: Pki, over_tls: bool) -> None:
    sent = b"\r\n\r\n0\r\n\r\nabcdefg" * (2 * MIB // 14)

    async def mirror(asked: Request) -> Response:
        body = await asked.read_body(limit=3 * MIB)
        return Response(200, (), [body] * 10)

    async with running(mirror, pki=pki if over_tls else None) as run:
        by_length = await run.ask(request("POST", "/", body=sent))
        in_chunks = await run.ask(chunked("/", sent[:MIB], sent[MIB:]))

    assert by_length.body == in_chunks.body == sent * 10


async def test_an_expectation_is_met_when_the_handler_wants_the_body() -> None:
    async with running(digest) as run:
        client = await run.client()
        await client.send(request("POST", "/", "Expect: 100-continue", "Content-Length: 3"))
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        answer = await client.ask(b"abc")
        again = await client.ask(get())

    assert answer.body.decode() == hashlib.sha256(b"abc").hexdigest()
    assert again.status == 200


async def test_a_body_that_was_announced_too_large_is_never_asked_for() -> None:
    async with running(digest) as run:
        client = await run.client()
        answer = await client.ask(
            request("POST", "/", "Expect: 100-continue", f"Content-Length: {4 * MIB}")
        )
        rest = await client.rest()

    assert (answer.status, answer.headers["connection"], rest) == (413, "close", b"")
    assert answer.status_message() == f"Request entity too large: limit is {3 * MIB}"


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_the_refusal_of_a_large_body_reaches_a_client_that_keeps_sending(
    pki: Pki, over_tls: bool
) -> None:
    async with running(digest, pki=pki if over_tls else None) as run:
        client = await run.client()
        client.writer.write(chunked("/", *[b"x" * MIB] * 8))
        answer = await client.answer()

    assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_a_refusal_is_not_lost_when_the_client_sends_everything_before_it_reads() -> None:
    async with running(digest) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(chunked("/", *[b"x" * MIB] * 8))
        await until(lambda: not client.writer.transport.get_write_buffer_size())
        client.resume_reading()
        answer = await client.answer()

    assert answer.status == 413


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    async with running(digest) as run:
        by_length = await run.ask(request("POST", "/", body=b"x" * 3 * MIB))
        in_chunks = await run.ask(chunked("/", b"x" * 3 * MIB))
        one_more = await run.ask(chunked("/", b"x" * 3 * MIB, b"x"))

    assert [by_length.status, in_chunks.status, one_more.status] == [200, 200, 413]


async def test_a_body_nobody_reads_does_not_spoil_the_next_request() -> None:
    async def ignore(asked: Request) -> Response:
        return Response(200, (), asked.path.encode())

    async with running(ignore) as run:
        client = await run.client()
        first = await client.ask(request("POST", "/first", body=b"GET /x HTTP/1.1\r\n\r\n"))
        second = await client.ask(get("/second"))

    assert (first.body, second.body) == (b"/first", b"/second")


async def test_an_answer_before_the_body_has_come_ends_the_connection() -> None:
    async def ignore(asked: Request) -> Response:
        return Response(200, (), asked.path.encode())

    async with running(ignore) as run:
        client = await run.client()
        await client.send(request("POST", "/early", "Content-Length: 100"))
        answer = await client.answer()
        await client.send(b"x" * 100 + get("/never"))
        rest = await client.rest()

    assert (answer.body, answer.headers["connection"], rest) == (b"/early", "close", b"")


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async def answer(_asked: Request) -> Response:
        return Response(200, [("Content-Type", "text/plain")], b"hello")

    async with running(answer) as run:
        client = await run.client()
        await client.send(request("HEAD", "/"))
        to_head = await client.answer(to_head=True)
        to_get = await client.ask(get())

    assert to_head.headers["content-length"] == to_get.headers["content-length"] == "5"
    assert to_get.body == b"hello"


async def test_no_content_has_neither_body_nor_length() -> None:
    async def answer(asked: Request) -> Response:
        return Response(204 if asked.path == "/empty" else 200, (), b"text")

    async with running(answer) as run:
        client = await run.client()
        empty = await client.ask(get("/empty"))
        full = await client.ask(get("/full"))

    assert (empty.status, "content-length" in empty.headers) == (204, False)
    assert full.body == b"text"


async def test_every_answer_is_dated() -> None:
    async with running(echo) as run:
        answer = await run.ask(get())

    assert email.utils.parsedate_to_datetime(answer.headers["date"]).tzinfo is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        get("/", "Connection: close"),
    ],
)
async def test_a_client_that_wants_no_second_request_gets_no_second_answer(raw: bytes) -> None:
    async with running(echo) as run:
        client = await run.client()
        answer = await client.ask(raw + get("/second"))
        rest = await client.rest()

    assert (answer.status, answer.headers["connection"], rest) == (200, "close", b"")


async def test_a_half_closed_client_still_gets_its_answer() -> None:
    async def slowly(asked: Request) -> Response:
        await asked.wait_disconnected()  # as far as we know: half a connection looks like none
        return Response(200, (), asked.path.encode())

    async with running(slowly) as run:
        client = await run.client()
        await client.send(get("/last-words"))
        client.writer.write_eof()
        answer = await client.answer()

    assert answer.body == b"/last-words"


async def test_what_handlers_remember_lasts_as_long_as_the_connection() -> None:
    async def count(asked: Request) -> Response:
        asked.connection_memory["seen"] = asked.connection_memory.get("seen", 0) + 1
        return Response(200, (), str(asked.connection_memory["seen"]).encode())

    async with running(count) as run:
        client = await run.client()
        bodies = [(await client.ask(get())).body for _ in range(3)]
        other = await run.ask(get())

    assert (bodies, other.body) == ([b"1", b"2", b"3"], b"1")


async def test_a_bug_in_a_handler_is_a_500_and_one_line_in_the_log(
    logged_errors: LoggedErrors,
) -> None:
    async def broken(asked: Request) -> Response:
        if asked.path == "/broken":
            raise KeyError("secret-token")
        return Response(200)

    async with running(broken) as run:
        client = await run.client()
        answer = await client.ask(get("/broken?token=hidden"))
        after = await client.ask(get("/fine"))

    line = logged_errors.expect("handler failed")
    assert (answer.status, after.status) == (500, 200)
    assert "secret-token" not in answer.status_message()
    assert (line["path"], type(line["exc_info"])) == ("/broken", KeyError)


async def test_a_refusal_from_a_handler_is_its_answer_and_no_line_in_the_log() -> None:
    async def refuse(_asked: Request) -> Response:
        raise NotFound('pods "web" not found')

    async with running(refuse) as run:
        answer = await run.ask(get())

    assert (answer.status, answer.status_message()) == (404, 'pods "web" not found')


async def test_a_handler_that_says_nothing_is_a_bug(logged_errors: LoggedErrors) -> None:
    async def silent(_asked: Request) -> None:
        return None

    async with running(silent) as run:
        answer = await run.ask(get())

    logged_errors.expect("handler failed")
    assert answer.status == 500


@pytest.mark.parametrize(
    "headers",
    [
        [("Warning", "a\r\nSet-Cookie: b")],
        [("Warning", "a\nb")],
        [("X\r\nY", "a")],
        [("Warning", "a\0b")],
        [("content-length", "1")],
        [("Transfer-Encoding", "chunked")],
    ],
)
async def test_a_header_that_would_split_the_answer_is_never_sent(
    headers: list[tuple[str, str]], logged_errors: LoggedErrors
) -> None:
    async def split(_asked: Request) -> Response:
        return Response(200, headers, b"")

    async with running(split) as run:
        client = await run.client()
        answer = await client.ask(get("/", "Connection: close"))
        rest = await client.rest()

    logged_errors.expect("handler failed")
    assert (answer.status, rest, "set-cookie" in answer.headers) == (500, b"", False)


async def test_a_handler_learns_how_an_unreadable_body_failed() -> None:
    failures: list[ApiError] = []

    async def note(asked: Request) -> Response:
        try:
            await asked.read_body(limit=100)
        except ApiError as error:
            failures.append(error)
            raise
        return Response(200)

    async with running(note) as run:
        client = await run.client()
        answer = await client.ask(
            request("POST", "/", "Transfer-Encoding: chunked") + b"3\r\nabc\r\nnonsense\r\n" + get()
        )
        rest = await client.rest()

    assert [each.code for each in failures] == [400]
    assert (answer.status, answer.headers["connection"], rest) == (400, "close", b"")


async def test_a_body_is_left_in_the_kernel_until_a_handler_wants_it() -> None:
    go_on = asyncio.Event()

    async def later(asked: Request) -> Response:
        await go_on.wait()
        return Response(200, (), str(len(await asked.read_body(limit=64 * MIB))).encode())

    async with running(later, limits=quick(body_ahead_bytes=1024)) as run:
        client = await run.client()
        client.writer.write(request("POST", "/", body=b"x" * 32 * MIB))
        unsent = await until_still(client.writer.transport.get_write_buffer_size)
        go_on.set()
        answer = await client.answer()

    assert unsent > 16 * MIB
    assert answer.body == str(32 * MIB).encode()


async def test_an_address_that_is_taken_is_an_error_that_leaves_nothing_behind() -> None:
    async with running(echo) as run:
        second = HttpServer(echo)
        with pytest.raises(OSError, match="in use"):
            await second.listen(run.host, run.port)

        assert second.addresses == []


async def test_a_failure_answer_that_fails_too_does_not_leave_the_client_waiting(
    logged_errors: LoggedErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_asked: Request) -> Response:
        raise KeyError("first")

    def also_broken(_error: Exception) -> Response:
        raise KeyError("second")

    monkeypatch.setattr(protocol, "answer_failure", also_broken)
    server = HttpServer(broken)
    await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    writer.write(get())
    try:
        received = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        received = b""
    writer.close()
    await server.drain(0)

    logged_errors.expect("handler failed")
    logged_errors.expect("answer failed")
    assert received == b""
