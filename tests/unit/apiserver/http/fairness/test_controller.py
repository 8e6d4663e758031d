"""Which way a request goes, and how many seats there are on it."""

from typing import Any

import pytest
from tests.unit.apiserver.http.fairness.levels import Time

from clusterspace.apiserver.flow_control import default_objects
from clusterspace.apiserver.http.fairness.controller import FlowController, Refusals
from clusterspace.apiserver.http.fairness.fair_queues import ONE_SEAT
from clusterspace.apiserver.http.fairness.step import (
    PROMPT_WATCHERS,
    Watches,
    is_from_start,
    list_width,
    write_width,
)
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import ANONYMOUS, AUTHENTICATED, MASTERS, User
from clusterspace.builtins.flow_control import (
    MANDATORY_LEVELS,
    MANDATORY_SCHEMAS,
    flow_schema,
    groups,
    resource_rule,
    rules_for,
    url_rule,
    users,
)
from clusterspace.testing.clocks import ManualClock


def controller(*more: Any, seats: int = 600) -> FlowController:
    time = Time()
    made = FlowController(
        ManualClock(),
        lambda act: None,
        time.later,
        seats=seats,
        mandatory=(MANDATORY_SCHEMAS, MANDATORY_LEVELS),
    )
    schemas, levels = default_objects()
    made.configure([*schemas, *more], levels)
    return made


def user(name: str, *in_groups: str) -> User:
    return User(name, (*in_groups, AUTHENTICATED))


MAPS = "/api/v1/namespaces/shop/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/east"
ACCOUNT = "system:serviceaccount:"


@pytest.mark.parametrize(
    ("who", "method", "path", "schema"),
    [
        (user("root", MASTERS), "GET", MAPS, "exempt"),
        (user("jane"), "GET", "/healthz/etcd", "probes"),
        (ANONYMOUS, "GET", "/livez", "probes"),
        (user("jane"), "GET", "/healthzz", "global-default"),
        (user("jane"), "GET", MAPS, "global-default"),
        (ANONYMOUS, "GET", MAPS, "global-default"),
        (user(f"{ACCOUNT}shop:bot", "system:serviceaccounts"), "GET", MAPS, "service-accounts"),
        (user(f"{ACCOUNT}kube-system:x"), "GET", MAPS, "kube-system-service-accounts"),
        (user(f"{ACCOUNT}kube-system-not:x"), "GET", MAPS, "global-default"),
        (user("system:kube-controller-manager"), "PUT", LEASE, "system-leader-election"),
        (user("system:kube-controller-manager"), "DELETE", LEASE, "kube-controller-manager"),
        (user("system:node:a", "system:nodes"), "PUT", LEASE, "system-node-high"),
        (user("system:node:a", "system:nodes"), "GET", MAPS, "system-nodes"),
        (
            user("system:karmada:agent:east", "system:karmada:agents"),
            "PATCH",
            LEASE,
            "clusterspace-heartbeats",
        ),
        (user("system:clusterspace-controllers"), "PUT", LEASE, "clusterspace-leader-election"),
        (user("system:clusterspace-fleet"), "GET", MAPS, "clusterspace-components"),
    ],
)
def test_a_request_goes_where_kubernetes_would_send_it(
    who: User, method: str, path: str, schema: str
) -> None:
    assert controller().route(who, read_request(method, path, "")).schema.name == schema


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        (resource_rule(("get",)), "GET", f"{MAPS}/a", True),
        (resource_rule(("get",)), "GET", MAPS, False),
        (resource_rule(api_groups=("apps",)), "GET", MAPS, False),
        (resource_rule(resources=("configmaps",)), "PUT", f"{MAPS}/a", True),
        (resource_rule(resources=("pods",)), "GET", "/api/v1/namespaces/a/pods/b/status", False),
        (
            resource_rule(resources=("pods/status",)),
            "GET",
            "/api/v1/namespaces/a/pods/b/status",
            True,
        ),
        (resource_rule(is_cluster_scoped=False), "GET", "/api/v1/nodes", False),
        (resource_rule(is_cluster_scoped=False), "GET", MAPS, True),
        ({**resource_rule(), "namespaces": ["shop"]}, "GET", MAPS, True),
        ({**resource_rule(), "namespaces": ["other"]}, "GET", MAPS, False),
        ({**resource_rule(), "namespaces": ["other"]}, "GET", "/api/v1/configmaps", True),
    ],
)
def test_rules_match_as_in_kubernetes(rule: Any, method: str, path: str, matches: bool) -> None:
    mine = flow_schema("mine", "workload-low", 50, "", rules_for(users("jane"), (rule,), ()))

    found = controller(mine).route(user("jane"), read_request(method, path, ""))

    assert (found.schema.name == "mine") is matches


@pytest.mark.parametrize(("url", "matches"), [("/a", True), ("/a/*", True), ("/a/b", False)])
def test_urls_match_what_is_below_them(url: str, matches: bool) -> None:
    mine = flow_schema("mine", "workload-low", 50, "", rules_for(groups("*"), (), (url_rule(url),)))

    found = controller(mine).route(user("jane"), read_request("GET", "/a/c", ""))

    assert (found.schema.name == "mine") is matches


def test_the_lower_precedence_decides_and_then_the_name() -> None:
    rules = rules_for(users("jane"))
    b, a, first = (
        flow_schema(name, "workload-low", at, "", rules)
        for name, at in (("b", 9), ("a", 9), ("z", 8))
    )
    asked = read_request("GET", MAPS, "")

    assert controller(b, a).route(user("jane"), asked).schema.name == "a"
    assert controller(b, a, first).route(user("jane"), asked).schema.name == "z"


def test_a_schema_whose_level_is_missing_is_passed_over() -> None:
    mine = flow_schema("mine", "nowhere", 50, "", rules_for(users("jane")))

    found = controller(mine).route(user("jane"), read_request("GET", MAPS, ""))

    assert found.schema.name == "global-default"


def test_flows_are_told_apart_by_user_or_by_namespace() -> None:
    made = controller()
    asked, elsewhere = (read_request("GET", path, "") for path in (MAPS, MAPS.replace("shop", "b")))
    manager = user("system:kube-controller-manager")

    assert made.route(user("jane"), asked).flow is made.route(user("jane"), elsewhere).flow
    assert made.route(user("jane"), asked).flow is not made.route(user("carl"), asked).flow
    assert made.route(manager, asked).flow is not made.route(manager, elsewhere).flow
    assert made.route(manager, asked).flow is made.route(manager, asked).flow


def test_seats_are_divided_by_shares() -> None:
    levels = controller().levels

    nominal = {name: level.nominal for name, level in levels.items()}
    assert nominal == {
        "system": 74,
        "node-high": 98,
        "leader-election": 25,
        "workload-high": 98,
        "workload-low": 245,
        "global-default": 49,
        "catch-all": 13,
        "exempt": 0,
    }
    assert (levels["workload-low"].lower, levels["workload-low"].upper) == (25, 845)


def test_a_busy_level_borrows_and_gives_back_what_others_need_again() -> None:
    made = controller()
    busy, resting = made.levels["global-default"], made.levels["workload-low"]
    busy.demand.set(500)
    for _ in range(3):
        made._clock.freeze(10)  # pyright: ignore[reportAttributeAccessIssue]
        made.adjust()
    borrowed = busy.current
    resting.demand.set(400)
    made._clock.freeze(10)  # pyright: ignore[reportAttributeAccessIssue]
    made.adjust()

    assert borrowed > 4 * busy.nominal
    assert resting.current >= resting.nominal
    assert busy.current < borrowed
    assert sum(level.current for level in made.levels.values()) <= 610


def test_a_level_that_is_gone_serves_out_who_is_in_it() -> None:
    made = controller()
    asked = read_request("GET", MAPS, "")
    route = made.route(user("jane"), asked)
    ticket = route.level.queues.start(route.flow, ONE_SEAT)
    assert ticket is not None
    schemas, levels = default_objects()
    fewer = [each for each in levels if each["metadata"]["name"] != "global-default"]

    made.configure(schemas, fewer)

    assert made.levels["global-default"].is_leaving
    assert not made.has_level("global-default")
    assert made.route(user("jane"), asked).schema.name == "catch-all"
    route.level.queues.finish(ticket)
    made.adjust()
    assert "global-default" not in made.levels


def test_paths_that_are_made_up_do_not_fill_the_memory() -> None:
    made = controller()
    for number in range(20_000):
        made.route(user("jane"), read_request("GET", f"/made/up/{number}", ""))

    assert len(made._routes) <= 8192


# -- widths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "stored", "seats"),
    [
        ("", 50, 1),
        ("", 1000, 10),
        ("", 100_000, 10),
        ("", None, 1),
        ("limit=100", 1000, 1),
        ("limit=250", 1000, 3),
        ("limit=100&labelSelector=a", 1000, 10),
        ("limit=100&resourceVersion=0", 1000, 10),
        ("fieldSelector=metadata.name%3Da", 300, 3),
    ],
)
def test_a_list_is_as_wide_as_what_is_read_for_it(
    query: str, stored: int | None, seats: int
) -> None:
    assert list_width(read_request("GET", MAPS, query), stored, 10).seats == seats


def test_a_write_is_wide_afterwards_when_many_watch() -> None:
    watches = Watches()
    for path, count in (("/api/v1/configmaps", 100), (MAPS, 20), (f"{MAPS}/a", 3)):
        for number in range(count):
            watches.add(read_request("GET", path, "watch=1"), f"user-{number}")

    assert watches.interested(read_request("PUT", f"{MAPS}/a", "")) == (123, 123)
    assert watches.interested(read_request("POST", MAPS, "")) == (120, 120)
    elsewhere = read_request("POST", "/api/v1/namespaces/b/configmaps", "")
    assert watches.interested(elsewhere) == (100, 100)
    assert watches.interested(read_request("POST", "/api/v1/namespaces/b/secrets", "")) == (0, 0)
    assert write_width(9, 10) is ONE_SEAT
    width = write_width(2000, 10)
    assert (width.seats, width.final_seats) == (1, 10)
    assert width.final_seats * width.final_seconds == pytest.approx(200 * 0.00025)


def test_who_writes_has_no_seats_for_the_crowd_of_somebodys_watches() -> None:
    watches, writing = Watches(), read_request("POST", MAPS, "")
    removals = [watches.add(read_request("GET", MAPS, "watch=1"), "flood") for _ in range(2000)]
    removals.append(watches.add(read_request("GET", MAPS, "watch=1"), "carl"))

    assert watches.interested(writing) == (2001, PROMPT_WATCHERS + 1)

    for remove in removals:
        remove()
    assert watches.interested(writing) == (0, 0)


def test_only_a_watch_from_the_start_is_a_list() -> None:
    assert is_from_start(read_request("GET", MAPS, "watch=1"))
    assert is_from_start(read_request("GET", MAPS, "watch=1&resourceVersion=0"))
    assert is_from_start(
        read_request("GET", MAPS, "watch=1&resourceVersion=7&sendInitialEvents=true")
    )
    assert not is_from_start(read_request("GET", MAPS, "watch=1&resourceVersion=7"))


def test_no_request_is_wider_than_what_fits_several_times() -> None:
    levels, few = controller().levels, controller(seats=30).levels

    assert [levels[name].most_seats for name in ("global-default", "workload-low")] == [8, 10]
    assert few["global-default"].most_seats == 1


def test_whoever_is_refused_often_is_told_to_come_back_later() -> None:
    clock = ManualClock()
    refusals = Refusals(clock.now)
    seconds: list[int] = []
    for _ in range(12):
        for _ in range(20):
            refusals.note()
        seconds.append(refusals.seconds)
        clock.freeze(1)
    assert seconds[0] == 1
    assert seconds[-1] > 4

    for _ in range(40):
        clock.freeze(10)
        refusals.note()
    assert refusals.seconds == 1
