"""Members that are away: a caller is shown what they last answered, with a word of its age."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    RBAC,
    TABLE,
    Heard,
    Site,
    fleet_site,
    grant,
    member_at,
    pulled,
    reaching,
    using,
)
from tests.component.gateway.watch_streams import watching

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http import agent_tunnels
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.gateway.clusters import ListKey
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import uid_of
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace, secret
from clusterspace.testing.builders import SECRETS as SECRETS_KIND
from clusterspace.testing.faults import FaultProxy, fault_proxy, status_reply
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
SECRETS = "/api/v1/namespaces/shop/secrets"
SHOP = ResourcePath(CONFIG_MAPS, "shop")
AWAY = "objects of clusters that are away are shown as they were: "
KUBECTL = (("Kubectl-Command", "kubectl get"),)
COUNT = 6


@dataclass
class Lost:
    """A member that can be taken away and given back."""

    name: str
    side: Side
    proxy: FaultProxy
    site: Site

    def leave(self) -> None:
        """Be away: whatever is asked is answered by a proxy that finds nobody behind it."""
        self.proxy.inject(status_reply(503, "ServiceUnavailable"), when=lambda _: True, times=None)

    def come_back(self) -> None:
        self.proxy.heal()
        self.site.running.fleet.directory.troubles.let_go(self.name)

    @property
    def names(self) -> list[str]:
        return [f"c{number}.clusterspace.{self.name}" for number in range(COUNT)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """East, which is always there; jane and carl may reach everything, and see some of it."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, federation=False, members=("east", "behind")) as running:
        for side in running.members.values():
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            await side.client.create(
                ResourcePath(SECRETS_KIND, "shop"), secret("s", namespace="shop")
            )
            for number in range(COUNT):
                labels = {"half": "left" if number < COUNT / 2 else "right"}
                made = config_map(f"c{number}", {"n": "0"}, namespace="shop", labels=labels)
                await side.client.create(SHOP, made)
        await grant(running.hub, "jane", reaching(), "reach-jane")
        await grant(running.hub, "carl", reaching(), "reach-carl")
        await grant(running.members["behind"], "jane", using("configmaps", "secrets"), "see-jane")
        await grant(running.members["behind"], "carl", using("configmaps"), "see-carl")
        yield running


@asynccontextmanager
async def lost_member(site: Site, name: str = "north") -> AsyncGenerator[Lost]:
    """Have the cluster `behind` join once more, by a way that can be broken."""
    side = site.members["behind"]
    async with AsyncExitStack() as stack:
        upstream = Connection(side.settings, clock=SystemClock(), random=Random(1))
        stack.push_async_callback(upstream.close)
        proxy = await stack.enter_async_context(fault_proxy(upstream, acts_for_users=True))
        await stack.enter_async_context(member_at(site, name, proxy.settings.server))
        yield Lost(name, side, proxy, site)


@asynccontextmanager
async def one_more(side: Side | Lost) -> AsyncGenerator[Any]:
    """Have one more object in a cluster for as long as the block lasts."""
    client = side.side.client if isinstance(side, Lost) else side.client
    made = await client.create(SHOP, config_map("new", {}, namespace="shop"))
    yield made
    await client.delete(SHOP.at("shop/new"), DeleteOptions(uid_of(made)))


async def revoke(side: Side, name: str) -> None:
    place = manifests.role_binding_path(name)
    await side.client.delete(place, DeleteOptions(uid_of(await side.client.get(place))))


async def bind(side: Side, user: str, role: str) -> None:
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": role}, "roleRef": ref, "subjects": subjects}
    kind = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding"}
    await side.client.create(manifests.role_binding_path(role).collection, {**kind, **binding})


def version_of(answer: Heard) -> str:
    return answer.body["metadata"]["resourceVersion"]


async def listed(site: Site, path: str = MAPS, token: str = "root-token", **more: Any) -> Heard:
    return await site.ask("GET", path, token=token, **more)


def of(answer: Heard, cluster: str) -> list[str]:
    return [
        each
        for each in answer.names
        if each.endswith(f".clusterspace.{cluster}") and "kube-root" not in each
    ]


async def test_the_last_state_of_a_member_that_is_away_is_shown_with_its_age(site: Site):
    async with lost_member(site) as north:
        before = await listed(site)
        north.leave()

        answer = await listed(site)

        assert answer.code == 200
        assert answer.body["items"] == before.body["items"]
        assert of(answer, "north") == north.names
        assert "the answer is incomplete: 1 of 3 clusters unreachable: north (" in answer.warning
        assert f"{AWAY}north (0s ago)" in answer.warning
        # It is of the version that it was: whoever watches from here misses nothing.
        assert version_of(answer) == version_of(before)

        async with one_more(north):
            north.come_back()
            answer = await listed(site)

            assert of(answer, "north") == [*north.names, "new.clusterspace.north"]
            assert not answer.warning


async def test_a_namespace_is_shown_as_it_was_to_who_saw_all_of_them(site: Site):
    everywhere = "/api/v1/configmaps"
    async with lost_member(site) as north:
        before = await listed(site, everywhere)
        assert len(of(before, "north")) > COUNT  # of other namespaces, too
        await site.ask("GET", everywhere, headers=(("Accept", TABLE),))
        north.leave()

        answer = await listed(site)
        assert of(answer, "north") == north.names
        assert "north (0s ago)" in answer.warning
        table = await site.ask("GET", MAPS, headers=(("Accept", TABLE),))
        shown = [row["cells"][0] for row in table.body["rows"]]
        assert [each for each in shown if re.match(r"c\d.*north", each)] == north.names
        assert not any(each.startswith("extension") for each in shown if "north" in each)
        # With other words it is another list, of which nothing is known.
        left = await listed(site, f"{MAPS}?labelSelector=half%3Dleft")
        assert of(left, "north") == []
        # And who was shown nothing of all namespaces is shown nothing of one.
        assert of(await listed(site, token="jane-token"), "north") == []


async def test_the_cluster_column_says_how_old_a_row_is(site: Site):
    table = (("Accept", TABLE),)
    async with lost_member(site) as north:
        await listed(site, headers=table)
        north.leave()

        rows = (await listed(site, headers=table)).body["rows"]

        shown = {row["cells"][0]: row["cells"][1] for row in rows}
        assert {shown[each] for each in north.names} == {"north (0s ago)"}
        assert shown["c0.clusterspace.east"] == "east"


async def test_nobody_is_shown_what_a_member_has_shown_to_another(site: Site):
    async with lost_member(site) as north:
        for token in ("root-token", "jane-token"):
            assert of(await listed(site, token=token), "north") == north.names
        await listed(site, SECRETS, "jane-token")
        north.leave()

        assert of(await listed(site, token="jane-token"), "north") == north.names
        for token, path in (
            ("carl-token", MAPS),  # who might have seen it, and has not asked
            ("jane-token", SECRETS),  # which nobody keeps
            ("jane-token", "/api/v1/configmaps"),  # more than was asked for
            ("jane-token", f"{MAPS}?labelSelector=half%3Dleft"),
        ):
            answer = await listed(site, path, token)
            assert AWAY not in answer.warning
            assert ".clusterspace.north" not in json.dumps(answer.body)


async def test_what_the_member_or_the_hub_takes_away_is_not_shown_again(site: Site):
    async with lost_member(site) as north:
        assert of(await listed(site, token="carl-token"), "north") == north.names
        await revoke(north.side, "see-carl")
        # The member says no, to whatever list of the kind: to what carl saw he has no right either.
        await listed(site, f"{MAPS}?labelSelector=half%3Dleft", "carl-token")
        assert of(await listed(site, token="jane-token"), "north") == north.names
        north.leave()

        answer = await listed(site, token="carl-token")
        assert (answer.code, AWAY in answer.warning) == (503, False)
        assert of(await listed(site, token="jane-token"), "north") == north.names

        await revoke(site.hub, "reach-jane")

        async def is_out_of_reach() -> bool:
            answer = await listed(site, token="jane-token")
            return answer.code == 403 and "north" not in answer.warning

        await until(is_out_of_reach)
    await bind(north.side, "carl", "see-carl")
    await bind(site.hub, "jane", "reach-jane")


async def test_a_member_that_users_are_kept_from_is_not_shown_as_it_was(site: Site):
    async with lost_member(site) as north:
        await listed(site)
        place = manifests.secret_path(manifests.impersonator_secret_name("north"))
        held = await site.hub.client.get(place)
        await site.hub.client.delete(place, DeleteOptions(uid_of(held)))

        async def is_closed() -> bool:
            return site.running.fleet.directory.problem_with("north") is not None

        await until(is_closed)
        north.leave()

        answer = await listed(site)

        assert of(answer, "north") == []
        assert "north (" in answer.warning
        assert AWAY not in answer.warning


async def test_another_cluster_of_the_same_name_has_none_of_it(site: Site):
    async with lost_member(site):
        await listed(site)
    async with lost_member(site) as another:
        another.leave()

        answer = await listed(site)

        assert of(answer, "north") == []
        assert AWAY not in answer.warning


async def test_who_names_the_member_is_told_that_it_is_away(site: Site):
    async with lost_member(site) as north:
        await listed(site)
        await listed(site, "/api/v1/namespaces/shop.clusterspace.north/configmaps")
        north.leave()

        for method, path, body in (
            ("GET", f"{MAPS}/c0.clusterspace.north", None),
            ("GET", "/api/v1/namespaces/shop.clusterspace.north/configmaps", None),
            ("DELETE", f"{MAPS}/c0.clusterspace.north", None),
            ("PATCH", f"{MAPS}/c0.clusterspace.north", {"data": {"n": "1"}}),
        ):
            kind = "application/merge-patch+json"
            answer = await site.ask(method, path, body, content_type=kind)
            assert answer.code in (503, 504), (method, path, answer.body)
        # A command that deletes what it lists is not given what nobody can delete now.
        deleting = (("Kubectl-Command", "kubectl delete"),)
        selected = f"{MAPS}?labelSelector=clusterspace.io%2Fcluster+in+%28north%2Ceast%29"
        await listed(site, selected)
        answer = await listed(site, selected, headers=deleting)
        assert of(answer, "north") == []
        assert AWAY not in answer.warning


async def test_pages_of_a_list_that_was_paged_add_up(site: Site):
    async def walk() -> tuple[list[Any], str]:
        items, token, warning = list[Any](), "", ""
        while True:
            answer = await listed(site, f"{MAPS}?limit=4&continue={token}", headers=KUBECTL)
            assert answer.code == 200, answer.body
            items += answer.body["items"]
            warning += answer.warning
            token = answer.body["metadata"].get("continue", "")
            if not token:
                return items, warning

    async with lost_member(site) as north:
        before, _ = await walk()
        north.leave()

        after, warning = await walk()

        assert after == before
        assert f"{AWAY}north (0s ago)" in warning
        # Read in part only, it is not shown: nobody could tell it from the whole.
        north.come_back()
        await listed(site, f"{MAPS}?limit=4", headers=KUBECTL)
        north.leave()
        after, warning = await walk()
        assert {each["metadata"]["name"].rpartition(".")[2] for each in after} == {"east", "behind"}
        assert AWAY not in warning


async def test_a_sorted_list_has_its_objects_in_their_places(site: Site):
    path = f"{MAPS}?sortBy=.metadata.name"
    async with lost_member(site) as north:
        before = await listed(site, path)
        north.leave()

        first = await listed(site, f"{path}&limit=4", headers=KUBECTL)
        token = first.body["metadata"]["continue"]
        rest = await listed(site, f"{path}&continue={token}", headers=KUBECTL)

        assert first.body["items"] + rest.body["items"] == before.body["items"]


async def test_a_sorted_page_says_who_was_compared_as_it_was_though_it_has_none_of_them(
    site: Site,
):
    path = f"{MAPS}?sortBy=.metadata.name"
    async with lost_member(site) as north:
        await listed(site, path)
        north.leave()

        first = await listed(site, f"{path}&limit=1", headers=KUBECTL)

        assert len(first.body["items"]) == 1
        assert of(first, "north") == []
        assert f"{AWAY}north (0s ago)" in first.warning


async def test_a_watch_from_there_on_tells_what_happened_meanwhile_and_no_deletion(site: Site):
    async with lost_member(site) as north:
        await listed(site)
        north.leave()
        answer = await listed(site)
        path = f"{MAPS}?watch=true&resourceVersion={version_of(answer)}"
        async with (
            watching(site.connection("root-token"), path) as stream,
            one_more(site.members["east"]),
        ):
            await stream.until_told(("ADDED", "new.clusterspace.east"))
            async with one_more(north.side):
                north.come_back()
                await stream.until_told(("ADDED", "new.clusterspace.north"))

            told = [each for each in stream.told if each[1].endswith("north")]
            assert told[0] == ("ADDED", "new.clusterspace.north")


async def test_an_informer_is_given_the_last_state_where_it_was_given_a_gap(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    async with lost_member(site) as north:
        site.running.fleet.cache.sweep(())  # what is known of a moment ago would do for any state
        before = await listed(site, f"{MAPS}?resourceVersion=0")
        north.leave()
        site.running.fleet.cache.sweep(())

        answer = await listed(site, f"{MAPS}?resourceVersion=0")
        assert answer.code == 503  # it waits: the member may be back in a moment

        def is_set_aside(key: ListKey, _failure: Exception) -> bool:
            return key.cluster == "north"

        monkeypatch.setattr(site.running.fleet.lapses, "is_set_aside", is_set_aside)
        answer = await listed(site, f"{MAPS}?resourceVersion=0")
        assert answer.body["items"] == before.body["items"]
        assert version_of(answer) == version_of(before)
        # Who has something newer is not taken back to it.
        async with one_more(north.side) as made:
            newer = versions.encode({"north": made["metadata"]["resourceVersion"]})
            answer = await listed(site, f"{MAPS}?resourceVersion={newer}")
            assert of(answer, "north") == []


async def test_a_pull_member_whose_agent_is_gone_is_shown_as_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    side = await site.fleet.add_member("pull")
    await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
    await side.client.create(SHOP, config_map("c0", {}, namespace="shop"))
    async with pulled(site, "pull", side):
        assert of(await listed(site), "pull") == ["c0.clusterspace.pull"]
    # Here its agent is gone, and the tunnel with it.

    async def is_cut_off() -> bool:
        return site.running.fleet.directory.problem_with("pull") is not None

    await until(is_cut_off)

    answer = await listed(site)

    assert of(answer, "pull") == ["c0.clusterspace.pull"]
    assert f"{AWAY}pull (" in answer.warning
    # It is no other when nobody expects the agent back any more.
    monkeypatch.setattr(agent_tunnels, "LONGEST_BLIP_SECONDS", 0.0)
    assert of(await listed(site), "pull") == ["c0.clusterspace.pull"]
    await site.ask("DELETE", f"/clusterspaces/hub{manifests.cluster_path('pull').path}")
    await site.wait_for("pull", is_gone=True)
