"""Paths whose parts disagree: what is authorized is what is touched, or there is no such path.

`/api/v1/namespaces/mine/namespaces/yours` was authorized in one namespace and deleted the other.
Here every resource that is served is put into every shape of path, with every method, by two
people, and what the path was authorized for is compared with what it touched.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from itertools import product

import pytest
import pytest_asyncio
from tests.attacks import oracle
from tests.attacks.oracle_judge import try_gateway, try_hub
from tests.attacks.oracle_site import Case, Shown, Site, ask, oracle_site
from tests.attacks.oracle_world import METHODS, PARTS, SHAPES, WORLD, proxied

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANT = "tenant"
"""May do everything in namespace tenant-r, and nothing anywhere else."""
VIEWER = "viewer"
"""May read most things everywhere, and change none."""
MINE, YOURS = "tenant-r", "victim"
MERGE = (("content-type", "application/merge-patch+json"),)
DISAGREEING = (
    "/api/v1/namespaces/tenant-r/namespaces",
    "/api/v1/namespaces/tenant-r/namespaces/victim",
    "/api/v1/namespaces/tenant-r/namespaces/tenant-r",
    "/api/v1/namespaces/tenant-r/namespaces/victim/status",
    "/api/v1/namespaces/tenant-r/namespaces/victim/finalize",
    "/api/v1/namespaces/tenant-r/namespaces/victim/configmaps/one",
    "/api/v1/namespaces/tenant-r/%6eamespaces/victim",
    "/api/v1/namespaces/tenant-r/nodes/victim",
    "/api/v1/namespaces/tenant-r/nodes",
    "/api/v1/namespaces/tenant-r/status/victim",
    "/api/v1/namespaces/tenant-r/configmaps/one/status/victim",
    "/api/v1/configmaps/one",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant-r/clusterroles/victim",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant-r/clusterrolebindings",
    "/apis/cluster.karmada.io/v1alpha1/namespaces/tenant-r/clusters/east",
    "/apis/cluster.karmada.io/v1alpha1/namespaces/tenant-r/clusters/east/proxy/api/v1/nodes",
    "/apis/odd.example/v1/namespaces/tenant-r",
    "/apis/odd.example/v1/namespaces/tenant-r/namespaces/tenant-r",
    "/apis/odd.example/v1/namespaces/tenant-r/watch/victim",
    "/apis/even.example/v1/namespaces/tenant-r",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with oracle_site(tmp_path_factory.mktemp("paths"), WORLD) as running:
        yield running


def corpus(site: Site, *, is_whole: bool) -> Iterator[Case]:
    """Put every resource into every shape: by every method and user, or by one after the other."""
    resources = sorted(site.hub.model.served)
    everybody = tuple(product(METHODS, (TENANT, VIEWER)))
    for number, (served, shape) in enumerate(product(resources, SHAPES)):
        group, version, resource = served
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        chosen = everybody if is_whole else (everybody[number % len(everybody)],)
        for method, user in chosen:
            name = (YOURS, "one", MINE)[number % 3]
            part = PARTS[number % len(PARTS)]
            path = shape.format(B=base, R=resource, N=MINE, O=YOURS, M=name, S=part)
            body = json.dumps({"metadata": {"name": name, "labels": {"a": "b"}}}).encode()
            is_told = method in ("POST", "PUT", "PATCH")
            yield Case(user, method, path, body if is_told else b"", MERGE if is_told else ())


async def check(site: Site, cases: list[Case]) -> None:
    verdict = await try_hub(site, cases)

    assert verdict.problems == []
    assert verdict.cases == len(cases)
    assert verdict.changed
    assert verdict.shown


async def test_every_resource_in_every_shape_of_path_touches_what_was_authorized(site: Site):
    cases = list(corpus(site, is_whole=False))

    assert len(cases) > 3_000
    await check(site, cases)


@pytest.mark.slow
async def test_so_it_does_by_every_method_and_for_everybody(site: Site):
    await check(site, list(corpus(site, is_whole=True)))


async def attack(site: Site, user: str, method: str, path: str) -> Shown:
    """Ask the hub; fail if anything changed or was shown."""
    body = b'{"metadata":{"labels":{"a":"b"}}}' if method in ("PUT", "PATCH", "POST") else b""
    site.forget()
    shown = await ask(site.hub.handler, Case(user, method, path, body, MERGE if body else ()))
    for server in site.servers.values():
        assert server.changes() == []
        assert server.canaries_in(shown.body) == []
    return shown


@pytest.mark.parametrize("path", DISAGREEING)
async def test_a_path_whose_parts_disagree_is_not_there_whatever_is_asked_of_it(
    site: Site, path: str
):
    for method in METHODS:
        assert (await attack(site, TENANT, method, path)).status == 404
        assert not [each for each in site.hub.witness.heard if each.user == TENANT]


@pytest.mark.parametrize("path", DISAGREEING)
async def test_who_may_not_read_discovery_learns_nothing_from_such_a_path(site: Site, path: str):
    served = await attack(site, "", "GET", path)
    made_up = await attack(site, "", "GET", path.replace("clusterroles", "made-up"))

    assert served.status == made_up.status == 403


@pytest.mark.parametrize("form", ["{}", "/clusterspaces/east{}", "/clusterspaces/hub{}", "proxy"])
@pytest.mark.parametrize("path", DISAGREEING)
async def test_through_the_gateway_it_is_not_there_either(site: Site, path: str, form: str):
    target = proxied("east", path) if form == "proxy" else form.format(path)
    cases = [Case(TENANT, method, target) for method in ("GET", "DELETE")]

    verdict = await try_gateway(site, cases)

    assert verdict.problems == []
    assert set(verdict.codes) <= {403, 404, 405}
    assert verdict.changed == verdict.shown == 0


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/tenant-r/configmaps/...clusterspace.east",
        "/api/v1/namespaces/tenant-r/configmaps/..clusterspace.east",
        "/api/v1/namespaces/...clusterspace.east/configmaps/one",
        "/api/v1/namespaces/..clusterspace.apiserver",
    ],
)
async def test_what_a_cluster_is_called_in_leaves_no_way_up_the_path(site: Site, target: str):
    verdict = await try_gateway(site, [Case("root", method, target) for method in METHODS])

    assert verdict.problems == []
    assert set(verdict.codes) == {400}


async def test_a_namespace_watched_by_the_old_path_is_that_one(site: Site):
    shown = await ask(site.hub.handler, Case(TENANT, "GET", "/api/v1/watch/namespaces/tenant-r"))

    assert shown.status == 200
    assert [each.name for each in site.hub.canaries_in(shown.body)] == [MINE]


async def test_a_head_ends_with_its_headers_and_leaves_no_watch_behind_it(site: Site):
    """The gateway's connections are shared: what goes on in one holds up who comes next."""
    for form in ("{}", "/clusterspaces/east{}"):
        path = form.format("/api/v1/namespaces/tenant-r/configmaps?watch=true")
        handler = site.gateway if "clusterspaces" in path else site.hub.handler
        for method in ("HEAD", "GET", "HEAD", "PUT"):
            plain = path if method == "HEAD" else path.removesuffix("?watch=true")
            shown = await ask(handler, Case(TENANT, method, plain), pause=0.004)
            assert shown.status in (200, 405), shown.body


async def test_the_model_itself_takes_these_paths_for_none() -> None:
    for path in DISAGREEING:
        assert not oracle.read("GET", path).is_a_path, path
