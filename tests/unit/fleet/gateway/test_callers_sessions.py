"""Which cluster a command is at: told when it is certain, and not told when it is not."""

from typing import Any, cast

import msgspec
import pytest

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.users import User
from clusterspace.fleet.gateway.callers import (
    REMEMBERED_SECONDS,
    Run,
    Sessions,
    run_of,
    selector_in,
)
from clusterspace.kube.selectors import label_selector_of, parse_label_selector
from clusterspace.testing.clocks import ManualClock

RUN = Run("jane", "session-1")
WEB = parse_label_selector("app=web")
TYPED = "application/vnd.kubernetes.protobuf,application/json"
PLAIN_KUBECTL = {"user-agent": "kubectl/v1.31.0", "accept": TYPED}


def asked(headers: dict[str, str], *, user: str = "jane", memory: Any = None) -> RequestContext:
    """Return as much of a call as says whose it is."""

    class Asked:
        connection_memory: dict[str, Any] = {} if memory is None else memory

    class AskedBy:
        request = Asked()

        def __init__(self) -> None:
            self.user = User(user)

        def header(self, name: str) -> str:
            return headers.get(name, "")

    return cast("RequestContext", AskedBy())


def with_session(command: str, session: str = "s1") -> dict[str, str]:
    return {"kubectl-session": session, "kubectl-command": command}


def test_what_a_run_has_found_is_known_to_the_same_run() -> None:
    sessions = Sessions(ManualClock())

    sessions.note(RUN, "shop", WEB, "west")

    assert sessions.find(RUN, "shop", WEB) == "west"


@pytest.mark.parametrize(
    ("run", "namespace", "selector"),
    [
        (Run("carl", "session-1"), "shop", "app=web"),
        (Run("jane", "session-2"), "shop", "app=web"),
        (RUN, "bank", "app=web"),
        (RUN, "shop", "app=api"),
        (RUN, "shop", "app=web,tier=front"),
        (RUN, "shop", "app!=web"),
        (RUN, "shop", ""),
    ],
)
def test_anything_else_is_for_every_cluster(run: Run, namespace: str, selector: str) -> None:
    sessions = Sessions(ManualClock())

    sessions.note(RUN, "shop", WEB, "west")

    assert sessions.find(run, namespace, parse_label_selector(selector)) is None


def test_two_clusters_with_the_same_selector_are_every_cluster() -> None:
    sessions = Sessions(ManualClock())

    sessions.note(RUN, "shop", WEB, "west")
    sessions.note(RUN, "shop", WEB, "east")
    sessions.note(RUN, "shop", WEB, "east")

    assert sessions.find(RUN, "shop", WEB) is None


async def test_after_a_minute_nothing_is_known() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    sessions.note(RUN, "shop", WEB, "west")

    await clock.advance(REMEMBERED_SECONDS - 0.1)
    assert sessions.find(RUN, "shop", WEB) == "west"
    await clock.advance(0.2)
    assert sessions.find(RUN, "shop", WEB) is None

    sessions.note(RUN, "shop", WEB, "east")
    assert sessions.find(RUN, "shop", WEB) == "east"


def test_the_oldest_is_forgotten_when_there_is_too_much() -> None:
    sessions = Sessions(ManualClock(), most=2)

    for number in range(3):
        sessions.note(Run("jane", str(number)), "shop", WEB, "west")

    found = [sessions.find(Run("jane", str(number)), "shop", WEB) for number in range(3)]
    assert found == [None, "west", "west"]


@pytest.mark.parametrize(
    ("selector", "listed"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchLabels": {"a": "1"}}, "a==1"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, "a=1"),
        (
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["2", "1"]}]},
            "a notin (1,2)",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "a"),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, "!a"),
    ],
)
def test_a_selector_is_the_same_however_it_is_written(selector: Any, listed: str) -> None:
    sessions = Sessions(ManualClock())

    sessions.note(RUN, "shop", label_selector_of(selector), "west")

    assert sessions.find(RUN, "shop", parse_label_selector(listed)) == "west"


@pytest.mark.parametrize(
    ("group", "resource", "selector"),
    [
        ("apps", "deployments", {"matchLabels": {"app": "web"}}),
        ("apps", "statefulsets", {"matchLabels": {"app": "web"}}),
        ("apps", "daemonsets", {"matchLabels": {"app": "web"}}),
        ("apps", "replicasets", {"matchLabels": {"app": "web"}}),
        ("batch", "jobs", {"matchLabels": {"app": "web"}}),
        ("", "services", {"app": "web"}),
        ("", "replicationcontrollers", {"app": "web"}),
    ],
)
def test_workloads_and_services_say_which_pods_are_theirs(
    group: str, resource: str, selector: Any
) -> None:
    body = msgspec.json.encode({"kind": "X", "spec": {"selector": selector, "replicas": 2}})

    assert selector_in(group, resource, body) == WEB


@pytest.mark.parametrize(
    ("group", "resource", "body"),
    [
        ("", "configmaps", b'{"spec":{"selector":{"app":"web"}}}'),
        ("", "services", b'{"spec":{"type":"ExternalName"}}'),
        ("", "services", b'{"spec":{"selector":{}}}'),
        ("", "services", b'{"spec":{"selector":{"app":7}}}'),
        ("", "services", b'{"spec":{"selector":"app=web"}}'),
        ("apps", "deployments", b'{"kind":"Table","rows":[]}'),
        ("apps", "deployments", b'{"spec":{"selector":{"matchLabels":{"a b":"c"}}}}'),
        ("apps", "deployments", b"not json"),
    ],
)
def test_what_selects_no_pods_leads_to_none(group: str, resource: str, body: bytes) -> None:
    assert selector_in(group, resource, body) is None


@pytest.mark.parametrize("command", ["logs", "exec", "attach", "port-forward"])
def test_a_run_is_known_by_its_session(command: str) -> None:
    run = run_of(asked(with_session(f"kubectl {command}")))

    assert run == Run("jane", "s1")


@pytest.mark.parametrize("command", ["kubectl get", "kubectl apply", "kubectl describe", ""])
def test_commands_that_do_not_go_on_to_pods_mean_every_cluster(command: str) -> None:
    assert run_of(asked(with_session(command))) is None


def test_a_session_of_any_length_costs_little() -> None:
    assert run_of(asked(with_session("kubectl logs", session="x" * 65))) is None


def test_without_a_session_a_run_is_known_by_its_connection() -> None:
    memory: dict[str, Any] = {}

    first = run_of(asked(PLAIN_KUBECTL, memory=memory))
    again = run_of(asked({**PLAIN_KUBECTL, "accept": "application/json, */*"}, memory=memory))
    other = run_of(asked(PLAIN_KUBECTL))
    somebody = run_of(asked(PLAIN_KUBECTL, user="carl", memory=memory))

    assert first is not None
    assert first == again
    assert first not in (other, somebody)


@pytest.mark.parametrize(
    "unclear",
    [
        {"user-agent": "OpenAPI-Generator/31.0.0/python"},
        {"user-agent": ""},
        {"accept": "application/json"},
        {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
        {"via": "1.1 balancer"},
        {"x-forwarded-for": "10.0.0.1"},
    ],
    ids=str,
)
def test_where_a_connection_says_nothing_every_cluster_is_meant(unclear: dict[str, str]) -> None:
    assert run_of(asked({**PLAIN_KUBECTL, **unclear})) is None
