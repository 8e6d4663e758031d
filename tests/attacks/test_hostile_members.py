"""One member of the fleet means harm: the others are served, and one warning names it."""

import asyncio
import gzip
import json
import resource
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import (
    ROOT,
    TABLE,
    Heard,
    Site,
    fleet_site,
    grant,
    reaching,
    using,
)
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.informers import Informer
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.gateway.merge import versions
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.hostile import (
    KINDS,
    LISTING_KINDS,
    REFUSING_KINDS,
    Asked,
    HostileMember,
    answering,
    head,
    list_head,
    listing,
    refusing,
    then,
)
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
INITIAL = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
EVERYTHING = ["h0", "e0.clusterspace.east", "w0.clusterspace.west"]
AS_TABLE = (("Accept", TABLE),)
COSTLY = {"endless", "gzip-bomb", "many-items", "slow-bytes", "slow-head"}
PATIENT_SECONDS, LATE_SECONDS = 30.0, 3.0
QUICK = sorted(REFUSING_KINDS.keys() - COSTLY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """The hub, east and west, each with one ConfigMap in `shop`; grace is over at once."""
    limits = FleetLimits(list_seconds=PATIENT_SECONDS, grace_seconds=0.0, lost_seconds=0.0)
    async with fleet_site(tmp_path_factory.mktemp("fleet"), limits=limits) as running:
        sides = {"h0": running.hub, "e0": running.members["east"], "w0": running.members["west"]}
        for name, side in sides.items():
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            await side.client.create(
                ResourcePath(CONFIG_MAPS, "shop"), config_map(name, namespace="shop")
            )
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, refusing(500, "InternalError")) as running:
        yield running


@pytest.fixture
def behave(site: Site, member: HostileMember) -> Callable[[str], None]:
    """Have the member behave in some way, as if nobody had asked it before."""

    def change(kind: str) -> None:
        member.behave = KINDS[kind]
        # Only who is about the deadline has a short one: all clusters share this loop, and on a
        # busy machine the good ones are late as well.
        seconds = LATE_SECONDS if kind in COSTLY else PATIENT_SECONDS
        object.__setattr__(site.running.fleet.limits, "list_seconds", seconds)
        site.running.fleet.directory.troubles.let_go(HOSTILE)

    return change


def names_in(answer: Heard) -> list[str]:
    assert answer.code == 200, answer.body
    is_table = answer.body["kind"] == "Table"
    shown = [row["cells"][0] for row in answer.body["rows"]] if is_table else answer.names
    return [name for name in shown if not name.startswith("kube-root-ca.crt")]


def has_one_warning(answer: Heard) -> bool:
    assert answer.warning.count("299 - ") == 1, answer.warning
    assert "1 of 4 clusters" in answer.warning, answer.warning
    assert f"{HOSTILE} (" in answer.warning
    assert answer.warning.isprintable()
    return True


@pytest.mark.parametrize("kind", QUICK)
async def test_whatever_a_member_says_the_others_are_listed_with_one_warning(
    site: Site, behave: Callable[[str], None], kind: str
):
    behave(kind)

    for path, headers in (
        (MAPS, ()),
        (MAPS, AS_TABLE),
        (f"{MAPS}?limit=500", AS_TABLE),
        (f"{MAPS}?limit=500", ()),
        (f"{MAPS}?resourceVersion=0", ()),
    ):
        answer = await site.ask("GET", path, headers=headers)
        assert names_in(answer) == EVERYTHING
        assert has_one_warning(answer)


@pytest.mark.parametrize("kind", sorted(COSTLY))
async def test_an_answer_without_end_costs_one_deadline_and_the_others_nothing(
    site: Site, behave: Callable[[str], None], kind: str
):
    behave(kind)
    before = site.running.fleet.memory.used

    async with bystander(site) as worst:
        answers = [await site.ask("GET", MAPS) for _ in range(2)]

    for answer in answers:
        assert names_in(answer) == EVERYTHING
        assert has_one_warning(answer)
    assert site.running.fleet.memory.used == before
    assert worst.seconds < 1.0, "nobody else waited"


class Worst:
    """The most work that came before an answer that takes a millisecond.

    In seconds of the processor: what others do on this machine meanwhile is no fault of ours.
    """

    seconds = 0.0


@asynccontextmanager
async def bystander(site: Site) -> AsyncGenerator[Worst]:
    """Ask for something small, all the time."""
    worst = Worst()

    async def ask() -> None:
        while True:
            started = time.process_time()
            await site.ask("GET", "/readyz", token="")
            worst.seconds = max(worst.seconds, time.process_time() - started)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(ask())
    try:
        yield worst
    finally:
        await stop(task)


@pytest.mark.parametrize("kind", sorted(REFUSING_KINDS.keys() - COSTLY))
async def test_informers_start_and_go_on_without_it(
    site: Site, behave: Callable[[str], None], kind: str
):
    behave(kind)
    name = f"n-{kind}"

    async with watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))
        await site.members["east"].client.create(
            ResourcePath(CONFIG_MAPS, "shop"), config_map(name, namespace="shop")
        )
        await found.until_told(("ADDED", f"{name}.clusterspace.east"))
        assert not found.is_over
    listed = await site.ask("GET", MAPS)
    version = listed.body["metadata"]["resourceVersion"]
    async with watch(site, f"&resourceVersion={version}") as found:
        path = f"{MAPS}/{name}.clusterspace.east"
        assert (await site.ask("DELETE", path)).code == 200
        await found.until_told(("DELETED", f"{name}.clusterspace.east"))


@asynccontextmanager
async def watch(site: Site, query: str) -> AsyncGenerator[Watching]:
    async with watching(site.connection(ROOT), f"{MAPS}?watch=1{query}") as found:
        yield found


@pytest.mark.parametrize("kind", sorted(LISTING_KINDS))
async def test_a_member_that_lists_and_lies_elsewhere_ends_nobodys_watch(
    site: Site, behave: Callable[[str], None], kind: str
):
    behave(kind)
    name = f"l-{kind}"
    path = f"{MAPS}/{name}.clusterspace.west"
    listed = await site.ask("GET", MAPS)
    assert names_in(listed) == EVERYTHING
    version = listed.body["metadata"]["resourceVersion"]

    async with watch(site, f"&resourceVersion={version}") as resumed, watch(site, INITIAL) as fresh:
        made = config_map(f"{name}.clusterspace.west", namespace="shop")
        assert (await site.ask("POST", MAPS, made)).code == 201
        for found in (resumed, fresh):
            await found.until_told(("ADDED", f"{name}.clusterspace.west"))
        await fresh.until(lambda each: bool(each.ends))
        assert (await site.ask("DELETE", path)).code == 200
        for found in (resumed, fresh):
            await found.until_told(("DELETED", f"{name}.clusterspace.west"))
            assert not found.is_over


async def test_an_expired_version_is_believed_of_who_was_asked_for_one_and_of_nobody_else(
    site: Site, member: HostileMember
):
    member.behave = listing()
    version = (await site.ask("GET", MAPS)).body["metadata"]["resourceVersion"]
    assert HOSTILE in versions.decode(version, site.running.fleet.directory.all_clusters())
    member.behave = refusing(410, "Expired")

    asked = await site.ask("GET", f"{MAPS}?resourceVersion={version}")
    unasked = await site.ask("GET", MAPS)

    assert (asked.code, asked.body["reason"]) == (410, "Expired")
    assert names_in(unasked) == EVERYTHING
    assert "about a resourceVersion that nobody asked for" in unasked.warning


async def test_a_page_that_never_comes_hides_no_cluster_behind_it(
    site: Site, behave: Callable[[str], None]
):
    behave("failing")  # and not as some earlier test left it

    async def first_page_only(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.parameter("continue"):
            return await refusing(410, "Expired")(asked, writer)
        metadata = {"resourceVersion": "5", "continue": "more"}
        item = {"metadata": {"name": "bait", "resourceVersion": "1"}}
        return await listing(item, metadata=metadata)(asked, writer)

    async with hostile_in(site, first_page_only, name="aaa"):
        # Beside h0 the hub has kube-root-ca.crt.
        first = await site.ask("GET", f"{MAPS}?limit=3", headers=AS_TABLE)
        token = first.body["metadata"]["continue"]
        second = await site.ask("GET", f"{MAPS}?limit=50&continue={token}", headers=AS_TABLE)

    assert names_in(first) == ["h0", "bait.clusterspace.aaa"]
    assert names_in(second) == EVERYTHING[1:]
    assert "aaa (" in second.warning


async def test_an_informer_that_waits_for_a_list_without_end_gets_the_rest(
    site: Site, member: HostileMember
):
    async def one_page(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.parameter("continue"):
            return await refusing(500, "InternalError")(asked, writer)
        items = [{"metadata": {"name": f"bait{n}", "namespace": "shop", "uid": f"{n}",
                               "resourceVersion": "1"}} for n in range(3)]  # fmt: skip
        metadata = {"resourceVersion": "5", "continue": "more"}
        return await listing(*items, metadata=metadata)(asked, writer)

    member.behave = one_page
    async with watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))

        told = [pair for pair in found.told if "bait" in pair[1]]
        assert sorted(told) == sorted(
            (change, f"bait{n}.clusterspace.{HOSTILE}")
            for n in range(3)
            for change in ("ADDED", "DELETED")
        )
        end = found.ends[0]["object"]["metadata"]["resourceVersion"]
        assert HOSTILE not in versions.decode(end, site.running.fleet.directory.all_clusters())


async def test_our_own_informer_syncs_and_keeps_what_the_others_have(
    site: Site, behave: Callable[[str], None]
):
    behave("mixed")
    informer = Informer(ClusterClient(site.connection(ROOT)), ResourcePath(CONFIG_MAPS, "shop"))
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(30):
            await informer.wait_synced()
        assert {f"shop/{name}" for name in EVERYTHING} <= set(informer.cache.keys())
    finally:
        await stop(task)


async def test_many_lists_at_once_of_endless_answers_stay_within_the_memory_of_the_gateway(
    site: Site, behave: Callable[[str], None]
):
    behave("endless")
    limits = site.running.fleet.limits
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    answers = await asyncio.gather(*(site.ask("GET", MAPS) for _ in range(8)))

    # All clusters share this loop with the gateway, and the deadline is short: some may be late.
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert {answer.code for answer in answers} <= {200, 503}
    assert grown < 2 * limits.answers_bytes
    assert site.running.fleet.memory.used == 0


async def test_a_small_answer_has_room_beside_those_that_fill_the_memory(
    tmp_path: Path,
):
    # What ends the endless answers is to be the memory they fill: on a busy machine that takes
    # longer than a short deadline, which would end them for another reason.
    limits = FleetLimits(list_seconds=60.0, answers_bytes=16 << 20, grace_seconds=0.0)
    async with (
        fleet_site(tmp_path, members=("east",), limits=limits) as small,
        hostile_in(small, KINDS["endless"]),
    ):
        path = "/api/v1/namespaces"
        answers = await asyncio.gather(*(small.ask("GET", path) for _ in range(8)))

        for answer in answers:
            assert answer.code == 200
            assert "default.clusterspace.east" in answer.names
            assert "no room for its answer" in answer.warning
        assert small.running.fleet.memory.used == 0


async def test_while_the_grace_lasts_who_keeps_a_copy_is_told_to_come_back(tmp_path: Path):
    limits = FleetLimits(list_seconds=5.0, grace_seconds=0.5, any_state_seconds=0.0)
    path = "/api/v1/namespaces"
    async with (
        fleet_site(tmp_path, members=("east",), limits=limits) as brief,
        hostile_in(brief, listing()) as member,
    ):

        async def is_served() -> bool:
            return (await brief.ask("GET", f"{path}?resourceVersion=0")).code == 200

        for code, reason in (
            (410, "Expired"),
            (500, "InternalError"),
            (401, "Unauthorized"),
            (429, "TooManyRequests"),
            (400, "BadRequest"),
        ):
            member.behave = listing()
            with_it = await brief.ask("GET", path)
            member.behave = refusing(code, reason)
            cached = await brief.ask("GET", f"{path}?resourceVersion=0")
            shown = await brief.ask("GET", path)
            version = shown.body["metadata"]["resourceVersion"]
            without = await brief.ask("GET", f"{path}?resourceVersion={version}")

            assert with_it.warning == ""
            assert (cached.code, cached.headers["retry-after"]) == (503, "1")
            assert shown.code == 200
            # A member that fails is shown as it was, and the vector says that the client has that.
            # Of one that refuses it says that the client has nothing.
            is_shown = "are shown as they were: " in shown.warning
            assert (is_shown, without.code) == ((True, 503) if code == 500 else (False, 200))
            await until(is_served)


async def test_a_bare_name_nobody_has_is_not_found_although_one_member_cannot_say(
    site: Site, behave: Callable[[str], None]
):
    behave("failing")

    nowhere = await site.ask("GET", "/api/v1/namespaces/nowhere")
    nothing = await site.ask("GET", "/apis/nobody.example/v1/things")

    assert (nowhere.code, nothing.code) == (404, 404)
    assert nowhere.warning == "", "a namespace without a cluster is the hub's"
    assert HOSTILE in nothing.warning


async def test_who_may_not_reach_it_hears_nothing_of_it_and_counts_what_is_theirs(
    site: Site, behave: Callable[[str], None]
):
    behave("failing")
    await grant(site.hub, "jane", reaching("east"), "jane-reaches")
    await grant(site.members["east"], "jane", using("configmaps"), "jane-uses")

    listed = await site.ask("GET", MAPS, token="jane-token")
    missing = await site.ask("GET", "/apis/nobody.example/v1/things", token="jane-token")

    for answer in (listed, missing):
        said = json.dumps(answer.body) + answer.warning
        assert HOSTILE not in said
        assert "of 4" not in said
        assert "of 3" not in said


@pytest.mark.parametrize("kind", ["endless", "gzip-bomb", "many-items", "deep", "garbage"])
async def test_fleet_documents_do_not_depend_on_it(
    site: Site, behave: Callable[[str], None], kind: str
):
    behave(kind)

    for path in ("/api", "/apis", "/version", "/openapi/v3", "/api/v1", "/apis/apps/v1"):
        answer = await site.ask("GET", path)
        assert answer.code == 200, path


async def test_a_packed_answer_in_good_form_is_still_read(site: Site, member: HostileMember):
    async def packed(asked: Asked, writer: asyncio.StreamWriter) -> None:
        item = {"metadata": {"name": "packed", "resourceVersion": "1"}, "data": {"a": "b" * 2000}}
        body = gzip.compress(json.dumps({**list_head(asked), "items": [item] * 500}).encode())
        writer.write(head(200, f"Content-Length: {len(body)}", "Content-Encoding: gzip") + body)

    member.behave = packed

    answer = await site.ask("GET", MAPS)

    assert answer.names.count(f"packed.clusterspace.{HOSTILE}") == 500


async def test_something_behind_a_packed_answer_is_not_kept(site: Site, member: HostileMember):
    body = (
        gzip.compress(b'{"kind":"ConfigMapList","apiVersion":"v1","items":[]}') + b"x" * 4_000_000
    )
    member.behave = answering(200, body, "Content-Encoding: gzip")

    answer = await site.ask("GET", MAPS)

    assert names_in(answer) == EVERYTHING
    assert "the compressed answer is damaged" in answer.warning


async def test_watches_that_are_answered_with_a_line_without_end_hold_little(
    site: Site, member: HostileMember
):
    member.behave = then(listing(), KINDS["endless"])
    version = (await site.ask("GET", MAPS)).body["metadata"]["resourceVersion"]

    async with watch(site, f"&resourceVersion={version}") as found:
        await wait_until(lambda: sum(each.is_watch for each in member.asked) >= 2)
        assert not found.is_over
    await wait_until(lambda: site.running.fleet.memory.used == 0)


async def wait_until(holds: Callable[[], bool]) -> None:
    async def is_so() -> bool:
        return holds()

    await until(is_so)
