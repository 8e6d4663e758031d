"""Quotas: counted before anything is stored, once for all that come together, never too low."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apiserver.hub_subjects import hub_state, served

from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.quotas import Charges, ResourceQuota
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.quota_controller import QuotaController
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.store.interface import Guard, KeyValue, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock, settle

QUOTAS = served("", "v1", "resourcequotas")
SECRETS = served("", "v1", "secrets")
KEY = QUOTAS.key("shop", "few")


class RacedStore(MemoryStore):
    """A store in which somebody else is quicker now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.races = 0
        self.puts = 0
        self.hold: asyncio.Event | None = None

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        self.puts += key == KEY
        if key == KEY and self.hold is not None:
            await self.hold.wait()
        if key == KEY and expected and self.races:
            self.races -= 1
            await super().put(key, value.replace(b'"used"', b'"used"'))
        return await super().put(key, value, expected=expected, guard=guard)


def quota(used: str, hard: str = "5") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "shop"},
        "spec": {"hard": {"secrets": hard}},
        "status": {"hard": {"secrets": hard}, "used": {"secrets": used}},
    }


def secret(name: str) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


class Site:
    """A hub with one quota, and writers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = RacedStore()
        self.plugin = ResourceQuota()
        bare = hub_state(self.store, self.clock)
        self.hub: HubState = replace(bare, plugins=(self.plugin,))

    async def put_quota(self, used: str, hard: str = "5") -> None:
        await self.store.put(KEY, forms.encode_stored(quota(used, hard), QUOTAS.form))

    async def count(self, name: str, **options: Any) -> None:
        """Have a new Secret counted, which is all that admission does before it is stored."""
        await self.hub.validate(Admission(SECRETS, User("u", ()), secret(name), **options))

    async def store_secret(self, name: str) -> None:
        key = SECRETS.key("shop", name)
        await self.store.put(key, forms.encode_stored(secret(name), SECRETS.form))

    async def create(self, name: str) -> bool:
        try:
            await self.count(name)
        except Forbidden:
            return False
        await self.store_secret(name)
        return True

    async def used(self) -> str:
        entry = await self.store.get(KEY)
        assert entry is not None
        return forms.decode_stored(entry, QUOTAS.form)["status"]["used"]["secrets"]


@pytest.fixture
def site() -> Site:
    return Site()


async def test_of_many_at_once_no_more_pass_than_fit_and_one_write_counts_them(site: Site) -> None:
    await site.put_quota("0")
    site.store.puts, site.store.hold = 0, asyncio.Event()

    async with asyncio.TaskGroup() as tasks:
        creating = [tasks.create_task(site.create(f"s-{number}")) for number in range(50)]
        await settle()
        site.store.hold.set()

    assert [each.result() for each in creating].count(True) == 5
    assert await site.used() == "5"
    assert site.store.puts == 2  # for the first, and for all who came while that was written


async def test_whoever_loses_a_race_for_the_count_looks_again(site: Site) -> None:
    await site.put_quota("0")
    site.store.races = 3

    assert await site.create("a")

    # The others wrote what we had read and added: so it is there, once for each of them and us.
    assert await site.used() == "4"


async def test_the_others_do_not_wait_for_one_who_left_while_counting_for_them(site: Site) -> None:
    await site.put_quota("0")
    site.store.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(site.create("first"))
        others = [tasks.create_task(site.create(f"s-{number}")) for number in range(3)]
        await settle()
        first.cancel()
        site.store.hold.set()

    assert [each.result() for each in others] == [True, True, True]
    assert await site.used() == "3"


async def test_a_dry_run_is_refused_for_lack_of_room_and_counts_nothing(site: Site) -> None:
    await site.put_quota("4")

    class DryRun:
        dry_run = True

    options: Any = DryRun()
    await site.count("a", options=options)
    await site.count("b", options=options)
    assert await site.used() == "4"
    await site.put_quota("5")
    with pytest.raises(Forbidden, match="exceeded quota: few, requested: secrets=1, used: "):
        await site.count("c", options=options)


async def test_a_name_that_is_taken_is_not_counted_again(site: Site) -> None:
    await site.put_quota("1")
    await site.store_secret("a")

    await site.count("a")

    assert await site.used() == "1"


async def test_a_recount_keeps_the_room_of_what_is_on_its_way(site: Site) -> None:
    await site.put_quota("0")
    controller = QuotaController(site.hub)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(controller.run())
        await site.clock.advance(1)
        await site.count("a")
        # Here a crash would leave it: counted, and not stored.
        await site.put_quota(await site.used(), hard="6")
        await site.clock.advance(1)
        assert await site.used() == "1"

        await site.store_secret("a")
        await site.put_quota(await site.used(), hard="7")
        await site.clock.advance(1)
        assert await site.used() == "1"
        counting.cancel()


async def test_what_was_counted_and_never_stored_is_given_back(site: Site) -> None:
    await site.put_quota("0")
    controller = QuotaController(site.hub)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(controller.run())
        await site.clock.advance(1)
        await site.count("lost")
        assert await site.used() == "1"
        for _ in range(3):
            await site.clock.advance(Charges.SECONDS + 1)
        assert await site.used() == "0"
        counting.cancel()


async def test_what_goes_is_given_back(site: Site) -> None:
    await site.put_quota("0")
    controller = QuotaController(site.hub)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(controller.run())
        await site.clock.advance(1)
        assert await site.create("a")
        assert await site.create("b")
        entry = await site.store.get(SECRETS.key("shop", "a"))
        assert entry is not None
        await site.store.delete(entry.key, expected=entry.mod_revision)
        await site.clock.advance(1)
        assert await site.used() == "1"
        counting.cancel()
