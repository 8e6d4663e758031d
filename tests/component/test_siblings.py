"""Workers of one server: what one is told, the others know before it is answered."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import pytest

from clusterspace.aio.siblings import Packet, PacketSocket, Siblings
from clusterspace.apiserver.http.users import CertificateLogin, User
from clusterspace.errors import SiblingGone
from clusterspace.fleet.gateway.callers import Writes, WrittenObject
from clusterspace.fleet.gateway.last_lists import Caller, LastLists
from clusterspace.fleet.page.sessions import Credential, Sessions
from clusterspace.testing.clocks import ManualClock

LONG = b"long" * 100_000


class Words:
    """What workers know in these tests."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.tell = self.heard.append

    def say(self, word: bytes) -> None:
        self.heard.append(word)
        self.tell(word)

    def hear(self, message: bytes) -> None:
        self.heard.append(message)

    def known(self) -> Iterable[bytes]:
        return list(self.heard)


class Worker:
    """One worker, and its supervisor's end of the socket."""

    def __init__(self, number: int) -> None:
        self.words = Words()
        self.orphaned = asyncio.Event()
        self.said: list[Packet] = []
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.supervisor = PacketSocket(here, lambda packet, _: self.said.append(packet), print)
        self.siblings = Siblings(there, number, self.orphaned.set)
        self.siblings.share("words", self.words)

    def close(self) -> None:
        self.siblings.close()
        self.supervisor.close()


def introduce(one: Worker, other: Worker) -> None:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.supervisor.send(Packet("sibling", other.siblings.own_number), first.detach())
    other.supervisor.send(Packet("sibling", one.siblings.own_number), second.detach())


@asynccontextmanager
async def two_workers() -> AsyncGenerator[tuple[Worker, Worker]]:
    """Run two workers of which the second joins when the first knows something."""
    first, second = Worker(1), Worker(2)
    first.supervisor.send(Packet("introduced"))
    await first.siblings.join()
    first.words.say(b"before")
    introduce(first, second)
    second.supervisor.send(Packet("introduced"))
    try:
        async with asyncio.timeout(30):
            yield first, second
    finally:
        first.close()
        second.close()


async def test_who_joins_hears_what_is_known_and_then_what_is_told() -> None:
    async with two_workers() as (first, second):
        await second.siblings.join()
        first.words.say(b"after")
        await first.siblings.heard()

        assert second.words.heard == [b"before", b"after"]


async def test_what_is_told_while_a_worker_joins_comes_after_what_was_before() -> None:
    async with two_workers() as (first, second):
        joining = asyncio.create_task(second.siblings.join())
        while not first.siblings.numbers:  # noqa: ASYNC110 - a packet is on its way
            await asyncio.sleep(0)
        first.words.say(b"meanwhile")
        await first.siblings.heard()
        await joining

        assert second.words.heard[-1] == b"meanwhile"
        assert second.words.heard[0] == b"before"


async def test_a_sibling_that_has_ended_is_not_waited_for() -> None:
    async with two_workers() as (first, second):
        await second.siblings.join()
        first.words.say(b"last")
        second.close()
        await first.siblings.heard()

        assert first.siblings.numbers == []
        with pytest.raises(SiblingGone):
            await first.siblings.ask(2, "known")


async def test_bodies_longer_than_a_packet_come_whole() -> None:
    async with two_workers() as (first, second):
        await second.siblings.join()
        second.siblings.answer("long", lambda body: body * 2)

        assert await first.siblings.ask(2, "long", LONG) == LONG * 2


async def test_a_file_is_handed_over_and_lasts() -> None:
    async with two_workers() as (first, second):
        await second.siblings.join()
        taken: asyncio.Future[tuple[bytes, int]] = asyncio.get_running_loop().create_future()
        second.siblings.take("pipe", lambda body, file: taken.set_result((body, file)))
        reading, writing = os.pipe()
        assert first.siblings.hand_over(2, "pipe", b"for west", writing)

        body, file = await taken
        os.write(file, b"through")
        os.close(file)

        assert (body, os.read(reading, 100)) == (b"for west", b"through")
        os.close(reading)
        assert not first.siblings.hand_over(3, "pipe", b"", os.open(os.devnull, os.O_RDONLY))


async def test_a_worker_whose_supervisor_ends_is_told() -> None:
    async with two_workers() as (first, _):
        first.supervisor.close()
        await first.orphaned.wait()


# -- what is shared --------------------------------------------------------------------------------


def test_a_session_is_known_to_who_hears_of_it_until_it_is_closed() -> None:
    clock = ManualClock()
    here, there = Sessions(clock), Sessions(clock)
    here.tell, there.tell = there.hear, here.hear
    user = User("jane", ("staff",), "7", {"scope": ("a",)})
    login = CertificateLogin(user, 0.0, 9.0, "print", 2**159 + 1, "ca")
    secret = here.open("jane", Credential("token", login))

    found = there.find(secret)

    assert found is not None
    assert there.credential_of(found, secret) == Credential("token", login)
    there.allow_writes(secret, found, allowed=True)
    again = here.find(secret)
    assert again is not None
    assert here.may_write(again)
    opened = list(here.known())
    assert there.close(secret)
    assert here.find(secret) is None
    for told in opened:  # of before, and late
        here.hear(told)
    assert here.find(secret) is None


async def test_a_session_that_one_worker_uses_lasts_at_the_other() -> None:
    clock = ManualClock()
    here, there = Sessions(clock), Sessions(clock)
    here.tell, there.tell = there.hear, here.hear
    secret = here.open("jane", Credential("token"))
    for _ in range(5):
        await clock.advance(3000)
        assert here.find(secret) is not None

    assert there.find(secret) is not None


async def test_a_write_by_way_of_another_worker_is_known_while_it_lasts_and_longer() -> None:
    clock = ManualClock()
    here, there = Writes(clock), Writes(clock)
    here.tell = there.hear
    written = WrittenObject("jane", "west", "configmaps", "shop", "settings")
    with here.writing(written):
        await clock.advance(50)
        assert there.knows(written)
    await clock.advance(9)
    assert there.knows(written)
    late = Writes(clock)
    for told in there.known():
        late.hear(told)
    assert late.knows(written)
    await clock.advance(2)
    assert not there.knows(written)
    assert not late.knows(written)


def test_a_refusal_by_way_of_another_worker_is_noted() -> None:
    here, there = LastLists(ManualClock(), 1000, 10.0), LastLists(ManualClock(), 1000, 10.0)
    told: list[Caller] = []
    here.tell = there.hear
    there.tell = lambda _: told.append(Caller("", b"", "", ""))

    here.note_refusal(Caller("west", b"jane", "", "pods"))

    assert told == []  # what is heard is not told again
