"""The store on etcd keeps every promise of the interface, and those of several hubs at once."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.etcd.compaction import Compactor
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import ABSENT, Store
from clusterspace.errors import (
    Compacted,
    OutcomeUnknown,
    RevisionMismatch,
    StoreFull,
    StoreUnavailable,
    StoreUnreadable,
    Unstorable,
)
from clusterspace.telemetry import metrics
from clusterspace.testing.etcd import EtcdCluster, EtcdProxy, etcd_for_test, etcd_proxy
from clusterspace.testing.steps import until
from clusterspace.testing.store_contract import (
    WAITING_EVENTS,
    DurableStoreContract,
    GuardedWrites,
    put_all,
    read_events,
    revisions_of,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdCluster]:
    async with etcd_for_test(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def settings(etcd: EtcdCluster) -> EtcdSettings:
    return etcd.at(f"/{uuid.uuid4()}")


@pytest.fixture
async def proxy(etcd: EtcdCluster) -> AsyncIterator[EtcdProxy]:
    async with etcd_proxy(etcd) as running:
        yield running


async def open_store(settings: EtcdSettings, stack: AsyncExitStack) -> EtcdStore:
    store = await EtcdStore.open(settings, root="", maximum_waiting_events=WAITING_EVENTS)
    stack.push_async_callback(store.close)
    return store


@pytest.fixture
async def stores(settings: EtcdSettings) -> AsyncIterator[tuple[EtcdStore, EtcdStore]]:
    async with AsyncExitStack() as stack:
        yield await open_store(settings, stack), await open_store(settings, stack)


@pytest.fixture
async def troubled(settings: EtcdSettings, proxy: EtcdProxy) -> AsyncIterator[EtcdStore]:
    """A store behind the proxy."""
    behind = EtcdSettings(proxy.settings.servers, prefix=settings.prefix)
    async with AsyncExitStack() as stack:
        yield await open_store(behind, stack)


@pytest.fixture
async def lossy(etcd: EtcdCluster) -> AsyncIterator[EtcdProxy]:
    """A proxy that is as etcd, and understands all it does."""
    async with etcd_proxy(etcd, is_kine=False) as running:
        yield running


@pytest.fixture
async def fenced(settings: EtcdSettings, lossy: EtcdProxy) -> AsyncIterator[EtcdStore]:
    """A store behind that proxy."""
    behind = EtcdSettings(lossy.settings.servers, prefix=settings.prefix)
    async with AsyncExitStack() as stack:
        yield await open_store(behind, stack)


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


class TestEtcdStore(DurableStoreContract):
    @pytest.fixture(autouse=True)
    def use(self, settings: EtcdSettings) -> None:
        self.settings = settings

    async def open_store(self, directory: Path) -> Store:
        return await EtcdStore.open(self.settings, root="", maximum_waiting_events=WAITING_EVENTS)


@pytest.mark.slow
class TestMovedStore(GuardedWrites, TestEtcdStore):
    """One whose revisions go on from elsewhere."""

    async def open_store(self, directory: Path) -> Store:
        try:
            store = await EtcdStore.open(self.settings, root="", ahead=1_000_000)
        except StoreUnreadable:
            pass  # it was filled before
        else:
            await store.finish_filling()
            await store.close()
        return await super().open_store(directory)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three_members(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdCluster]:
    async with etcd_for_test(tmp_path_factory.mktemp("three"), members=3) as cluster:
        yield cluster


@pytest.mark.slow
class TestThreeMembers(GuardedWrites, DurableStoreContract):
    @pytest.fixture(autouse=True)
    def use(self, three_members: EtcdCluster) -> None:
        self.settings = three_members.at(f"/{uuid.uuid4()}")

    async def open_store(self, directory: Path) -> Store:
        return await EtcdStore.open(self.settings, root="", maximum_waiting_events=WAITING_EVENTS)


@pytest.mark.slow
class TestKineGrammar(TestEtcdStore):
    @pytest.fixture(autouse=True)
    async def use(self, settings: EtcdSettings, proxy: EtcdProxy) -> AsyncIterator[None]:
        self.settings = EtcdSettings(proxy.settings.servers, prefix=settings.prefix)
        yield
        assert proxy.refused == []


# -- several hubs on one etcd --------------------------------------------------------------------

Two = tuple[EtcdStore, EtcdStore]


async def test_after_a_sync_one_hub_shows_what_another_was_answered(stores: Two) -> None:
    one, other = stores
    for step in range(20):
        written = await one.put("/a", str(step).encode())
        await other.sync()
        assert await other.get("/a") == written


async def test_a_sync_ends_although_only_foreign_keys_have_changed(
    stores: Two, etcd: EtcdCluster
) -> None:
    one, other = stores
    await one.put("/a", b"")
    async with AsyncExitStack() as stack:
        stranger = await open_store(etcd.at(f"/{uuid.uuid4()}"), stack)
        foreign = await stranger.put("/b", b"")

    assert await other.sync() >= foreign.mod_revision
    assert await other.count("") == 1


async def test_a_watch_goes_on_at_another_hub_without_a_gap_or_a_repeat(
    stores: Two, settings: EtcdSettings
) -> None:
    one, other = stores
    start = one.current_revision
    first = one.watch("/pods/", after=start)
    written = await put_all(one, ["/pods/a", "/nodes/a", "/pods/b"])
    seen = await read_events(first, 1)
    async with AsyncExitStack() as stack:
        late = await open_store(settings, stack)  # started after all that
        written += await put_all(other, ["/pods/c"])
        second = late.watch("/pods/", after=first.revision)
        seen += await read_events(second, 3 - len(seen))

    assert [event.key for event in seen] == ["/pods/a", "/pods/b", "/pods/c"]
    assert {event.item for event in seen} <= set(written)


async def test_of_writers_at_two_hubs_exactly_one_wins(stores: Two) -> None:
    start = await stores[0].put("/counter", b"")

    async def try_to_win(number: int) -> bool:
        try:
            await stores[number % 2].put(
                "/counter", str(number).encode(), expected=start.mod_revision
            )
        except RevisionMismatch:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(try_to_win(number)) for number in range(20)]
    assert sum(task.result() for task in tries) == 1


async def test_whoever_loses_a_race_reads_what_it_lost_to(stores: Two) -> None:
    one, other = stores
    stale = await one.put("/a", b"1")
    await other.sync()
    newer = await one.put("/a", b"2")

    with pytest.raises(RevisionMismatch) as refusal:
        await other.put("/a", b"3", expected=stale.mod_revision)

    assert refusal.value.actual == newer.mod_revision
    assert await other.get("/a") == newer


async def test_a_prefix_that_belongs_to_another_server_is_refused(
    stores: Two, settings: EtcdSettings
) -> None:
    await stores[0].put("/sub/a", b"")
    within = EtcdSettings(
        settings.servers,
        prefix=f"{settings.prefix}/sub",
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
    )
    with pytest.raises(StoreUnreadable, match="Choose another --etcd-prefix"):
        await EtcdStore.open(within, root="")


async def test_an_object_that_etcd_does_not_take_is_refused_and_changes_nothing(
    stores: Two,
) -> None:
    with pytest.raises(Unstorable, match="--max-request-bytes"):
        await stores[0].put("/a", b"x" * 4 * 1024 * 1024)
    assert await stores[0].get("/a") is None


async def test_of_two_compactors_one_compacts_and_to_what_is_an_interval_old(stores: Two) -> None:
    one, other = (Compactor(each.client) for each in stores)
    for _ in range(2):  # whatever others have left there
        await one.step()
        await other.step()
    mark = await stores[0].sync()
    written = await put_all(stores[0], ["/a", "/b", "/c"])

    first, second = await one.step(), await other.step()

    assert [bool(first), bool(second)].count(True) == 1
    assert max(first, second) <= mark < written[0].mod_revision
    await stores[0].compact(written[1].mod_revision)  # and by hand, further
    with pytest.raises(Compacted):
        await stores[0].range("", at=written[0].mod_revision)
    assert len((await stores[1].range("")).items) == 3


# -- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["absent", "present"])
async def test_a_write_whose_answer_was_lost_is_answered_and_happened_once(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str], expected: str
) -> None:
    before = await troubled.put("/a", b"0") if expected == "present" else None
    after = troubled.current_revision
    proxy.lost_answers = 1

    written = await troubled.put(
        "/a", b"1", expected=ABSENT if before is None else before.mod_revision
    )

    events = await read_events(troubled.watch("/a", after=after), 1)
    assert [event.item for event in events] == [written]
    assert await troubled.get("/a") == written
    assert proxy.refused == []


async def test_a_write_whose_answer_was_lost_is_not_denied_by_an_etcd_that_is_full_now(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str]
) -> None:
    before = await troubled.put("/a", b"0", expected=ABSENT)
    proxy.lost_answers, proxy.is_full = 1, True
    try:
        with pytest.raises(OutcomeUnknown, match="has no room now"):
            await troubled.put("/a", b"1", expected=before.mod_revision)
        with pytest.raises(StoreFull):
            await troubled.put("/b", b"1", expected=ABSENT)
    finally:
        proxy.is_full = False

    await troubled.sync()
    stored = await troubled.get("/a")
    assert stored is not None
    assert stored.value == b"1"
    assert await troubled.get("/b") is None


async def test_a_write_that_etcd_has_carried_out_is_not_denied_for_want_of_room(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str]
) -> None:
    # The member that finds itself at its quota carries the write out, and says that it is full.
    proxy.fills_up = True
    try:
        made = await troubled.put("/a", b"1", expected=ABSENT)
        changed = await troubled.put("/a", b"2", expected=made.mod_revision)
    finally:
        proxy.fills_up = False

    assert await troubled.get("/a") == changed


async def test_a_write_that_was_lost_on_its_way_is_made_again(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str]
) -> None:
    before = await troubled.put("/a", b"0", expected=ABSENT)
    proxy.lost_requests = 2
    failed = counted("etcd_request_errors_total", operation="txn")
    answered = counted("etcd_request_duration_seconds_count", operation="txn")
    written = await troubled.put("/a", b"1", expected=before.mod_revision)
    assert await troubled.get("/a") == written
    assert counted("etcd_request_errors_total", operation="txn") == failed + 2
    assert counted("etcd_request_duration_seconds_count", operation="txn") == answered + 1


async def test_a_create_that_was_lost_on_its_way_claims_nothing_and_is_not_sent_again(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str]
) -> None:
    # The proxy has lost it, but for all the store knows it is only late; and if what it makes is
    # deleted, a second one would make it once more.
    proxy.lost_requests = 1
    with pytest.raises(OutcomeUnknown, match="read it before you create it again"):
        await troubled.put("/a", b"1", expected=ABSENT)
    await troubled.sync()
    assert await troubled.get("/a") is None


async def test_a_create_that_etcd_never_got_is_made_again(
    fenced: EtcdStore, lossy: EtcdProxy, logged_errors: list[str]
) -> None:
    lossy.lost_requests = 1
    written = await fenced.put("/a", b"1", expected=ABSENT)
    assert await fenced.get("/a") == written


async def test_a_create_that_comes_late_brings_nothing_back(
    fenced: EtcdStore, lossy: EtcdProxy, stores: Two, logged_errors: list[str]
) -> None:
    lossy.late_requests = 1
    written = await fenced.put("/a", b"1", expected=ABSENT)
    await fenced.delete("/a", expected=written.mod_revision)
    (late,) = lossy.late

    answer = messages.read_txn(await stores[0].client.call(messages.TXN, late))

    assert not answer.succeeded
    await stores[0].sync()
    assert await stores[0].get("/a") is None


async def test_a_create_whose_answer_was_lost_is_answered_though_it_was_changed_since(
    fenced: EtcdStore, lossy: EtcdProxy, stores: Two, logged_errors: list[str]
) -> None:
    after = fenced.current_revision
    lossy.lost_answers = 1
    written = await fenced.put("/a", b"1", expected=ABSENT)
    await stores[0].sync()
    await stores[0].put("/a", b"2", expected=written.mod_revision)

    events = await read_events(fenced.watch("/a", after=after), 2)
    assert [event.item.value for event in events] == [b"1", b"2"]


async def test_of_many_creates_that_were_cut_off_each_is_made_once(
    fenced: EtcdStore, lossy: EtcdProxy, logged_errors: list[str]
) -> None:
    after = fenced.current_revision
    lossy.lost_requests, lossy.lost_answers = 7, 7
    async with asyncio.TaskGroup() as group:
        writes = [
            group.create_task(fenced.put(f"/{number}", b"1", expected=ABSENT))
            for number in range(20)
        ]

    events = await read_events(fenced.watch("", after=after), 20)
    assert {event.item.key: event.item for event in events} == {
        each.result().key: each.result() for each in writes
    }


async def test_a_create_that_was_cut_off_meets_what_another_has_made_meanwhile(
    fenced: EtcdStore, lossy: EtcdProxy, stores: Two, logged_errors: list[str]
) -> None:
    theirs = await stores[0].put("/a", b"theirs", expected=ABSENT)
    lossy.lost_requests = 1
    with pytest.raises(RevisionMismatch):
        await fenced.put("/a", b"ours", expected=ABSENT)
    assert await fenced.get("/a") == theirs


class StillClock(SystemClock):
    """No time passes on it, however busy the machine is."""

    def monotonic(self) -> float:
        return 0.0


async def test_one_answer_that_was_lost_does_not_make_the_store_read_only(
    settings: EtcdSettings, proxy: EtcdProxy
) -> None:
    """Nothing is logged as an error: this test announces none."""
    behind = EtcdSettings(proxy.settings.servers, prefix=settings.prefix)
    store = await EtcdStore.open(behind, root="", clock=StillClock())
    try:
        for proxy.lost_answers, proxy.lost_requests in ((1, 0), (0, 1), (1, 1)):
            await store.put("/a", b"1")
            assert (store.is_reachable, store.refuses_writes) == (True, "")
    finally:
        await store.close()


async def test_a_delete_whose_answer_was_lost_claims_nothing(
    troubled: EtcdStore, proxy: EtcdProxy, logged_errors: list[str]
) -> None:
    stored = await troubled.put("/a", b"1")
    proxy.lost_answers = 1
    with pytest.raises(OutcomeUnknown, match="by this request or by another"):
        await troubled.delete("/a", expected=stored.mod_revision)
    assert await troubled.get("/a") is None


async def test_a_watch_that_etcd_still_looks_up_is_not_begun_again(
    troubled: EtcdStore, proxy: EtcdProxy, stores: Two
) -> None:
    """etcd answers no progress request before it has read all that happened since."""
    proxy.is_in_sync.clear()
    proxy.cut_watches()
    proxy.is_watchable.set()
    opened, asked = proxy.opened_watches, proxy.progress_requests
    written = await stores[0].put("/a", b"1")
    await until(lambda: proxy.progress_requests > asked + 8)
    assert proxy.opened_watches == opened + 1

    proxy.is_in_sync.set()
    await until(lambda: troubled.current_revision >= written.mod_revision)
    assert await troubled.get("/a") == written


async def test_a_watch_that_broke_goes_on_where_it_was(
    troubled: EtcdStore, proxy: EtcdProxy, stores: Two
) -> None:
    watch = troubled.watch("", after=troubled.current_revision)
    proxy.cut_watches()
    written = await put_all(stores[0], ["/a", "/b"])
    proxy.is_watchable.set()

    assert revisions_of(await read_events(watch, 2)) == revisions_of(written)


async def test_a_gap_in_which_nothing_changed_is_nobodys_trouble(
    troubled: EtcdStore, proxy: EtcdProxy, stores: Two, etcd: EtcdCluster
) -> None:
    await stores[0].put("/a", b"")
    await troubled.sync()
    watch = troubled.watch("", after=troubled.current_revision)
    proxy.cut_watches()
    async with AsyncExitStack() as stack:
        stranger = await open_store(etcd.at(f"/{uuid.uuid4()}"), stack)
        foreign = await stranger.put("/b", b"")
        await stranger.compact(foreign.mod_revision)
    written = await stores[0].put("/c", b"")
    proxy.is_watchable.set()

    assert revisions_of(await read_events(watch, 1)) == [written.mod_revision]


async def test_a_gap_that_cannot_be_filled_makes_watchers_list_again(
    troubled: EtcdStore, proxy: EtcdProxy, stores: Two
) -> None:
    reloads = counted("clusterspace_store_reloads_total", reason="gap")
    watch = troubled.watch("", after=troubled.current_revision)
    proxy.cut_watches()
    written = await put_all(stores[0], ["/a", "/a"])
    await stores[0].compact(written[-1].mod_revision)
    proxy.is_watchable.set()

    with pytest.raises(Compacted):
        await read_events(watch, 1)
    assert counted("clusterspace_store_reloads_total", reason="gap") == reloads + 1
    await troubled.sync()
    assert await troubled.get("/a") == written[-1]
    assert watch.revision < written[0].mod_revision


async def test_an_event_that_etcd_never_sent_is_found_by_comparing(
    troubled: EtcdStore, proxy: EtcdProxy, stores: Two
) -> None:
    assert await troubled.verify() == []
    proxy.lost_events = 1
    await put_all(stores[0], ["/lost"])
    await put_all(stores[0], ["/seen"])
    await troubled.sync()
    assert await troubled.verify() == ["/lost"]


async def test_while_nobody_answers_reads_are_served_and_nothing_is_claimed(
    tmp_path: Path, logged_errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterspace.apiserver.store.etcd.store.CALL_SECONDS", 0.5)
    monkeypatch.setattr("clusterspace.apiserver.store.etcd.client.CALL_SECONDS", 0.5)
    async with (
        etcd_for_test(tmp_path, tls=False, is_durable=True) as cluster,
        AsyncExitStack() as stack,
    ):
        store = await open_store(cluster.settings, stack)
        stored = await store.put("/a", b"1")
        await cluster.members[0].kill()

        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            await store.put("/a", b"2", expected=stored.mod_revision)
        with pytest.raises(StoreUnavailable, match="no member of etcd answers"):
            await store.sync()
        assert await store.get("/a") == stored
        assert store.refuses_writes

        await cluster.members[0].start()
        await until(store.sync)
        assert store.refuses_writes == ""
        again = await store.get("/a")
        assert again is not None
        assert again.value in (b"1", b"2")
