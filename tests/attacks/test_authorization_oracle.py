"""Random requests of a dozen people, held against an independent model of who may touch what.

Every case is a user, a path, a method and a body. What the servers let in, changed and showed is
compared with what the model allows: nothing may be touched that was not authorized. Then one check
after the other is taken out of the servers, and the model must notice.
"""

import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from tests.attacks import oracle
from tests.attacks.oracle_cases import gateway_cases, hub_cases
from tests.attacks.oracle_judge import Verdict, try_gateway, try_hub
from tests.attacks.oracle_site import Site, oracle_site
from tests.attacks.oracle_world import WORLD

from clusterspace.apiserver.access import authorizer, rbac
from clusterspace.apiserver.admission import rights
from clusterspace.apiserver.admission.escalation import EscalationGuard
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.guards import Authorize, Decision
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo, read_request, verb_of
from clusterspace.apiserver.http.users import Impersonation, User
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.verbs import proxy, watch, write
from clusterspace.fleet.gateway import fanout, routes
from clusterspace.fleet.gateway.callers import Gatekeeper, Reachable
from clusterspace.kube.objects import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEED = int(os.environ.get("ORACLE_SEED", "20261115"))
ENOUGH = 40_000
"""Cases within which a planted hole must show."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with oracle_site(tmp_path_factory.mktemp("oracle"), WORLD) as running:
        yield running


async def of_hub(site: Site, count: int, seed: int = SEED, **options: Any) -> Verdict:
    return await try_hub(site, islice(hub_cases(Random(seed)), count), **options)


async def of_gateway(site: Site, count: int, seed: int = SEED, **options: Any) -> Verdict:
    return await try_gateway(site, islice(gateway_cases(Random(seed)), count), **options)


def check(verdict: Verdict, count: int) -> None:
    print(f"seed {SEED}: {verdict}")
    assert verdict.problems == []
    assert verdict.cases == count
    # A run in which nothing is allowed would prove nothing.
    assert verdict.let_in > count / 50
    assert verdict.changed > count / 200
    assert verdict.shown > count / 100


async def test_the_hub_touches_only_what_was_authorized(site: Site):
    check(await of_hub(site, 3_000), 3_000)


async def test_the_gateway_touches_only_what_was_authorized(site: Site):
    check(await of_gateway(site, 300), 300)


async def test_so_they_do_when_asked_by_wire(site: Site):
    """The same requests as bytes over TLS: a listener reads no more into them than the chain."""
    cases = islice(hub_cases(Random(SEED + 2)), 150)

    verdict = await try_hub(site, cases, by_wire=True)

    assert verdict.problems == []
    assert verdict.let_in


@pytest.mark.slow
async def test_eighty_thousand_requests_to_the_hub_touch_only_what_was_authorized(site: Site):
    check(await of_hub(site, 80_000, SEED + 1), 80_000)


@pytest.mark.slow
async def test_twenty_five_thousand_to_the_gateway_touch_only_what_was_authorized(site: Site):
    check(await of_gateway(site, 25_000, SEED + 1), 25_000)


async def test_the_model_knows_the_scope_of_everything_that_is_served(site: Site):
    for each in site.hub.state.catalog.all():
        info = each.info
        assert oracle.is_cluster_scoped(info.group, info.plural) is not info.namespaced, info


async def test_the_model_shares_no_code_with_the_servers():
    source = inspect.getsource(oracle)
    lines = [line for line in source.splitlines() if line.startswith(("import ", "from "))]

    assert lines
    assert not [line for line in lines if "clusterspace" in line or "tests" in line]


# -- holes ---------------------------------------------------------------------------------------

Run = Callable[..., Awaitable[Verdict]]


@dataclass(frozen=True)
class Hole:
    """A check, and what stands in its place when it is taken out."""

    missing: str
    run: Run
    owner: Any
    name: str
    instead: Any


def fits_any_scope(self: RequestInfo, *, namespaced: bool) -> bool:
    return True


def authorizes_nobody(
    self: Authorize, context: RequestContext, rest: RequestHandler
) -> Awaitable[Response | None]:
    return rest(context)


async def admits(self: object, hub: HubState, admission: Admission) -> Object:
    return admission.new


def asks_nothing(self: Impersonation) -> Iterator[RequestInfo]:
    return iter(())


def takes_anybody(user: User) -> None:
    return None


def placed_as_told(_: object, kube_object: Object) -> Object:
    return kube_object


def allows_parts_of(self: rbac.Rule, resource: str, subresource: str = "") -> bool:
    return bool({resource, "*", f"{resource}/{subresource}"} & set(self.resources))


def allows_every_name(self: rbac.Rule, name: str) -> bool:
    return True


def only_deletes(method: str, path: str, query: str) -> RequestInfo:
    info = read_request(method, path, query)
    return replace(info, verb="delete") if info.verb == "deletecollection" else info


def watches_all(options: object, name: str) -> object:
    return options


async def reaches_all(self: Gatekeeper, user: User, verb: str, clusters: Any) -> Reachable:
    return Reachable(dict.fromkeys(clusters, Decision(allowed=True)))


def acts_as_itself(self: fanout.FleetContext, link: object) -> tuple[()]:
    return ()


def reaches_by_method(method: str, inner: RequestInfo, *, is_upgrade: bool) -> str:
    return verb_of(method)


def believes_the_first(mentions: Any) -> Any:
    return agreed(mentions[:1])


agreed = routes._agreed

HOLES = (
    Hole("the scope of paths", of_hub, RequestInfo, "fits_scope", fits_any_scope),
    Hole("authorization", of_hub, Authorize, "__call__", authorizes_nobody),
    Hole("escalation", of_hub, EscalationGuard, "admit", admits),
    Hole("impersonation", of_hub, Impersonation, "checks", asks_nothing),
    Hole("what agents write", of_hub, rights.AgentGuard, "admit", admits),
    Hole("the scope of agents", of_hub, authorizer, "scope_of", takes_anybody),
    Hole("the namespace in a body", of_hub, write, "place", placed_as_told),
    Hole("subresources", of_hub, rbac.Rule, "allows_resource", allows_parts_of),
    Hole("names in rules", of_hub, rbac.Rule, "allows_name", allows_every_name),
    Hole("deletecollection", of_hub, proxy, "read_request", only_deletes),
    Hole("creating by patch", of_hub, rights.CreateRight, "admit", admits),
    Hole("the name in a watch", of_hub, watch, "_named", watches_all),
    Hole("clusters/proxy", of_gateway, Gatekeeper, "admit", reaches_all),
    Hole("who asks members", of_gateway, fanout.FleetContext, "identity_for", acts_as_itself),
    Hole("one cluster", of_gateway, routes, "_agreed", believes_the_first),
    Hole("streams by get", of_gateway, fanout, "reach_verb", reaches_by_method),
    Hole("streams by get, on the hub", of_hub, proxy, "reach_verb", reaches_by_method),
)


@pytest.mark.slow
@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.missing.replace(" ", "-"))
async def test_a_check_that_is_missing_is_noticed(
    site: Site, hole: Hole, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hole.owner, hole.name, hole.instead)

    verdict = await hole.run(site, ENOUGH, most_problems=1)

    print(f"without {hole.missing}: found after {verdict.cases} cases: {verdict.problems[:1]}")
    assert verdict.problems


@pytest.mark.parametrize("hole", HOLES[:2], ids=lambda hole: hole.missing.replace(" ", "-"))
async def test_a_gaping_hole_is_noticed_at_once(
    site: Site, hole: Hole, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hole.owner, hole.name, hole.instead)

    verdict = await hole.run(site, 2_000, most_problems=1)

    assert verdict.problems
