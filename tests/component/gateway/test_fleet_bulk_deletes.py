"""Lists of commands that delete what they list: the hub's objects, and a word about members'."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import status
from tests.component.gateway.fleet_site import (
    Heard,
    Site,
    another_view,
    fake_member,
    fleet_site,
    grant,
    reaching,
    using,
    without_federation,
)

from clusterspace.apis.stamps import MANAGED
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import with_metadata
from clusterspace.testing.builders import NAMESPACES, SECRETS, namespace, secret

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/api/v1/namespaces/shop/secrets"
OF_HUB = ["h0", "h1"]
OF_ALL = [*OF_HUB, "e0.clusterspace.east", "w0.clusterspace.west", "w1.clusterspace.west"]
DELETE = "kubectl delete"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A hub with two Secrets in `shop`; east with one, west with two."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        sides = {"h": (running.hub, 2)}
        sides |= {"e": (running.members["east"], 1), "w": (running.members["west"], 2)}
        for letter, (side, count) in sides.items():
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for number in range(count):
                made = secret(f"{letter}{number}", {"k": letter}, namespace="shop")
                await side.client.create(ResourcePath(SECRETS, "shop"), made)
        yield running


async def ask_as(site: Site, command: str, path: str = PATH, token: str = "root-token") -> Heard:
    return await site.ask("GET", path, token=token, headers=(("Kubectl-Command", command),))


@pytest.mark.parametrize("command", [DELETE, "kubectl apply", "kubectl diff", "oc delete"])
async def test_what_is_to_be_deleted_is_the_hub_s_and_members_are_counted(site: Site, command: str):
    answer = await ask_as(site, command)

    assert (answer.code, answer.names) == (200, OF_HUB)
    assert answer.body["kind"] == "SecretList"
    assert "3 on members are left alone (east: 1, west: 2)" in answer.warning
    assert "name it: -n shop.clusterspace.east" in answer.warning


@pytest.mark.parametrize(
    "command", ["", "kubectl get", "kubectl label", "kubectl apply view-last-applied", "delete"]
)
async def test_who_only_looks_sees_every_cluster(site: Site, command: str):
    answer = await ask_as(site, command)

    assert (answer.names, answer.warning) == (OF_ALL, "")


async def test_pages_of_what_is_to_be_deleted_never_reach_a_member(site: Site):
    first = await ask_as(site, DELETE, f"{PATH}?limit=1")
    second = await ask_as(
        site, DELETE, f"{PATH}?limit=1&continue={first.body['metadata']['continue']}"
    )

    assert (first.names, second.names) == (["h0"], ["h1"])
    assert "continue" not in second.body["metadata"]
    assert "3 on members" in first.warning
    assert second.warning == ""


async def test_a_token_of_a_plain_list_does_not_lead_a_deletion_to_members(site: Site):
    looked = await site.ask("GET", f"{PATH}?limit=2")
    token = looked.body["metadata"]["continue"]

    answer = await ask_as(site, DELETE, f"{PATH}?limit=2&continue={token}")

    assert answer.code == 410, answer.body


async def test_a_namespace_with_a_cluster_reaches_that_member(site: Site):
    answer = await ask_as(site, DELETE, "/api/v1/namespaces/shop.clusterspace.west/secrets")

    assert (answer.names, answer.warning) == (["w0", "w1"], "")


async def test_copies_are_not_called_left_alone_when_their_templates_are_listed(site: Site):
    template = secret("copy", {"k": "c"}, namespace="mall")
    copy = with_metadata(template, labels={MANAGED: "true"})
    east = site.members["east"]
    for side in (site.hub, east):
        await side.client.create(ResourcePath(NAMESPACES), namespace("mall"))
    await east.client.create(ResourcePath(SECRETS, "mall"), copy)
    path = "/api/v1/namespaces/mall/secrets"

    without = await ask_as(site, DELETE, path)
    await site.hub.client.create(ResourcePath(SECRETS, "mall"), template)
    beside = await ask_as(site, DELETE, path)

    assert without.names == []
    assert "1 on members is left alone (east: 1)" in without.warning
    assert (beside.names, beside.warning) == (["copy"], "")


async def test_a_member_that_does_not_answer_is_said_to_be_uncounted(site: Site):
    async def fail(_: web.Request) -> web.StreamResponse:
        return status(500, "InternalError")

    async with fake_member(site, "bad", fail):
        answer = await ask_as(site, DELETE)

    assert answer.names == OF_HUB
    assert "3 on members are left alone" in answer.warning
    assert "could not be counted: 1 of 3 clusters unreachable: bad" in answer.warning


async def test_a_kind_that_the_hub_lacks_is_an_empty_list(site: Site):
    async def answer_riddles(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/riddles"):
            return status(404, "NotFound")
        riddle = {"metadata": {"name": "r", "resourceVersion": "7"}}
        listed = {"apiVersion": "example.com/v1", "kind": "RiddleList", "items": [riddle]}
        return web.json_response({**listed, "metadata": {"resourceVersion": "9"}})

    async with fake_member(site, "riddler", answer_riddles):
        answer = await ask_as(site, DELETE, "/apis/example.com/v1/riddles")

    assert (answer.code, answer.names, answer.body["kind"]) == (200, [], "RiddleList")
    assert "riddles.example.com of the hub; 1 on members is left alone" in answer.warning
    assert "NAME.clusterspace.riddler" in answer.warning


async def test_a_kind_that_nobody_has_is_not_found(site: Site):
    assert (await ask_as(site, DELETE, "/apis/example.com/v1/nothings")).code == 404


async def test_who_may_not_list_on_the_hub_is_told_so_and_shown_nothing(site: Site):
    await grant(site.hub, "jane", reaching(), "jane-reaches")
    for name, side in site.members.items():
        await grant(side, "jane", using("secrets"), f"jane-uses-{name}")

    answer = await ask_as(site, DELETE, token="jane-token")

    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")


async def test_a_view_without_the_hub_lists_nothing_to_delete(site: Site):
    async with without_federation(site) as members_only:
        answer = await ask_as(members_only, DELETE)
        paged = await ask_as(members_only, DELETE, f"{PATH}?limit=1")
        looked = await ask_as(members_only, "kubectl get")

    assert (answer.code, answer.names, answer.body["kind"]) == (200, [], "SecretList")
    assert "3 on members are left alone" in answer.warning
    assert paged.names == []
    assert "continue" not in paged.body["metadata"]
    assert len(looked.names) == 3


async def test_a_setting_lets_deletions_reach_every_cluster(site: Site):
    async with another_view(site, "reaching", bulk_delete_members=True) as reaching_all:
        answer = await ask_as(reaching_all, DELETE)

    assert (answer.names, answer.warning) == (OF_ALL, "")
