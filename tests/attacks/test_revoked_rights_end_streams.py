"""A right is taken away while its holder has a stream open: the stream ends within ten seconds.

Every test looks at one user's stream. All of them are opened and lose their rights side by side,
since each takes some seconds.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import RBAC, ROOT, Site, fleet_site, grant, reaching, using
from tests.component.gateway.watch_streams import Watching, watching
from tests.component.serving.wire import get, running

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.chain import Recheck, chain
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import Forbidden
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, config_map

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
BINDINGS = GroupVersionResource(RBAC, "v1", "clusterrolebindings")
ACCOUNTS = ResourcePath(GroupVersionResource("", "v1", "serviceaccounts"), "default")
REVOKED_SECONDS = 10.0
HUB = ("ADDED", "first")
EAST = ("ADDED", "first.clusterspace.east")
WEST = ("ADDED", "first.clusterspace.west")

Ended = dict[str, Watching]


class Scene:
    """One fleet, and people who have their streams open in it."""

    def __init__(self, site: Site, stack: AsyncExitStack) -> None:
        self.site = site
        self._stack = stack

    async def open(
        self, user: str, path: str, *expected: tuple[str, str], on_hub: bool = False
    ) -> Watching:
        """Watch as somebody, and return once these events have come."""
        connection = self.hub(ROOT) if on_hub else self.site.connection(ROOT)
        headers = (("Impersonate-User", user),)
        found = await self.enter(connection, path=f"{path}?watch=1", headers=headers)
        return await found.until_told(*expected)

    def hub(self, token: str) -> Connection:
        """Return a connection straight to the hub for whoever holds a token."""
        site, hub = self.site, self.site.hub.settings
        key = (token, hub.server)
        if key not in site.connections:
            settings = ConnectionSettings("hub", hub.server, hub.trust, AuthInfo(token=token))
            root = site.connection(ROOT)
            site.connections[key] = Connection(settings, clock=root.clock, random=root.random)
        return site.connections[key]

    async def use(self, user: str, *clusters: str) -> None:
        """Let somebody use ConfigMaps in clusters."""
        sides = {"hub": self.site.hub, **self.site.members}
        for name in clusters:
            await grant(sides[name], user, using("configmaps"), f"{user}-uses-{name}")

    async def reach(self, user: str, *clusters: str) -> None:
        """Let somebody reach members, by a right for each."""
        for name in clusters:
            await grant(self.site.hub, user, reaching(name), f"{user}-reaches-{name}")

    async def revoke(self, name: str) -> None:
        await self.remove(ResourcePath(BINDINGS, name=name))

    async def remove(self, place: ResourcePath) -> None:
        ask = ApiRequest("DELETE", place.path)
        await self.site.hub.client.connection.ask(ask)

    async def enter(self, connection: Connection, **options: Any) -> Watching:
        return await self._stack.enter_async_context(watching(connection, **options))


async def hub_user(scene: Scene) -> Watching:
    await scene.use("una", "hub")
    found = await scene.open("una", MAPS, HUB, on_hub=True)
    await scene.revoke("una-uses-hub")
    return found


async def deleted_account(scene: Scene) -> Watching:
    site, user = scene.site, "system:serviceaccount:default:robot"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await site.hub.client.create(ACCOUNTS, account)
    await grant(site.hub, user, using("configmaps"), "robot-uses")
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
    ask = ApiRequest("POST", path, headers=(("Content-Type", "application/json"),), body=body)
    token = json.loads((await site.hub.client.connection.ask(ask)).body)["status"]["token"]
    found = await scene.enter(scene.hub(token), path=f"{MAPS}?watch=1")
    await found.until_told(HUB)
    await scene.remove(ACCOUNTS.named("robot"))
    return found


async def through_the_hub(scene: Scene) -> Watching:
    await scene.use("uto", "east")
    await scene.reach("uto", "east")
    path = f"/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy{MAPS}"
    found = await scene.open("uto", path, HUB, on_hub=True)
    await scene.revoke("uto-reaches-east")
    return found


async def one_member_of_all(scene: Scene) -> Watching:
    await scene.use("ada", "hub", "east", "west")
    await scene.reach("ada", "east", "west")
    found = await scene.open("ada", MAPS, HUB, EAST, WEST)
    await scene.revoke("ada-reaches-west")
    return found


async def the_hub_of_all(scene: Scene) -> Watching:
    await scene.use("ida", "hub", "east")
    await scene.reach("ida", "east")
    found = await scene.open("ida", MAPS, HUB, EAST)
    await scene.revoke("ida-uses-hub")
    return found


async def one_member(scene: Scene) -> Watching:
    await scene.use("eva", "west")
    await scene.reach("eva", "west")
    found = await scene.open("eva", f"/clusterspaces/west{MAPS}", HUB)
    await scene.revoke("eva-reaches-west")
    return found


async def one_member_renamed(scene: Scene) -> Watching:
    await scene.use("mia", "east")
    await scene.reach("mia", "east")
    path = "/api/v1/namespaces/default.clusterspace.east/configmaps"
    found = await (await scene.open("mia", path)).until(lambda each: bool(each.told))
    await scene.revoke("mia-reaches-east")
    return found


SCENES = (
    hub_user,
    deleted_account,
    through_the_hub,
    one_member_of_all,
    the_hub_of_all,
    one_member,
    one_member_renamed,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Scene]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory) as site, AsyncExitStack() as stack:
        for side in (site.hub, *site.members.values()):
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("first"))
        yield Scene(site, stack)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(scene: Scene) -> Ended:
    """The streams of everybody, ten seconds after their rights were taken away."""

    async def play(act: Callable[[Scene], Awaitable[Watching]]) -> Watching:
        found = await act(scene)
        assert not found.is_over, "it ended before the right was taken away"
        try:
            async with asyncio.timeout(REVOKED_SECONDS):
                await found.until(lambda each: each.is_over)
        except TimeoutError:
            pass  # each test says so of its own
        return found

    async with asyncio.TaskGroup() as group:
        stays = group.create_task(_stays(scene))
        acts = {each.__name__: group.create_task(play(each)) for each in SCENES}
    return {"stays": stays.result(), **{name: act.result() for name, act in acts.items()}}


async def _stays(scene: Scene) -> Watching:
    await scene.use("leo", "hub", "east", "west")
    # No more than it takes to watch: what is asked again must be what was asked first.
    (rule,) = reaching()
    await grant(scene.site.hub, "leo", [{**rule, "verbs": ["get"]}], "leo-reaches")
    return await scene.open("leo", MAPS, HUB, EAST, WEST)


def last_error(found: Watching) -> int:
    assert (found.is_over, found.is_broken) == (True, False)
    last = found.events[-1]
    assert last["type"] == "ERROR", last
    return last["object"]["code"]


async def test_a_watch_on_the_hub_ends_with_403(ended: Ended) -> None:
    assert last_error(ended["hub_user"]) == 403


async def test_a_watch_ends_with_the_account_that_opened_it(ended: Ended) -> None:
    assert last_error(ended["deleted_account"]) == 401


async def test_a_watch_of_a_member_through_the_hub_is_cut(ended: Ended) -> None:
    assert ended["through_the_hub"].is_over


async def test_a_watch_of_the_fleet_ends_when_one_member_is_out_of_reach(
    ended: Ended, scene: Scene
) -> None:
    assert last_error(ended["one_member_of_all"]) == 410

    acting = (("Impersonate-User", "ada"),)
    listed = await scene.site.ask("GET", MAPS, headers=acting)
    assert EAST[1] in listed.names
    assert WEST[1] not in listed.names


async def test_a_watch_of_the_fleet_ends_when_the_hub_takes_its_part_back(ended: Ended) -> None:
    assert last_error(ended["the_hub_of_all"]) == 410


async def test_a_watch_of_one_member_through_the_gateway_is_cut(ended: Ended) -> None:
    assert ended["one_member"].is_over
    assert ended["one_member_renamed"].is_over


async def test_a_stream_whose_rights_stay_goes_on(ended: Ended, scene: Scene) -> None:
    stays = ended["stays"]
    await scene.site.members["west"].client.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map("still")
    )
    await stays.until_told(("ADDED", "still.clusterspace.west"))

    assert not stays.is_over


@pytest.mark.parametrize("way", ["hijack", "stream"])
async def test_a_shell_and_a_log_are_cut(way: str) -> None:
    rights: list[str] = ["create pods/exec"]

    async def still_allowed(context: RequestContext, rest: RequestHandler) -> Response | None:
        if not rights:
            raise Forbidden("no longer")
        return await rest(context)

    async def serve_for_ever(context: RequestContext) -> None:
        if way == "hijack":
            context.request.hijack().write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n$ ")
        else:
            context.request.start_stream(200, ()).write(b"$ ")
        await asyncio.get_running_loop().create_future()

    recheck = Recheck((still_allowed,), SystemClock())
    answer = chain((recheck,), serve_for_ever)

    async def handle(request: Request) -> Response | None:
        info = read_request("GET", "/api/v1/namespaces/shop/pods/web/exec", "")
        return await answer(RequestContext(request, info, "id"))

    async with running(handle) as run:
        client = await run.client()
        upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1") if way == "hijack" else ()
        await client.send(get("/", *upgrade))
        async with asyncio.timeout(REVOKED_SECONDS):
            assert await client.reader.readuntil(b"$ ")
        await recheck.look()
        assert run.server.connection_count == 1

        rights.clear()
        await recheck.look()
        assert await client.rest() in (b"", b"\r\n")
