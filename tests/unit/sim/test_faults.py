"""Faults on request, as rules."""

import pytest

from clusterspace.apiserver.http.request_info import read_request
from clusterspace.errors import BadRequest
from clusterspace.sim.faults import Fault, FaultRule, is_exempt, read_rules


def test_rules_are_read_from_yaml() -> None:
    text = "- {fault: error, code: 500, chance: 0.5, verbs: [list], resources: [pods]}"

    assert read_rules({"rules": text}) == (
        FaultRule(
            Fault.ERROR,
            verbs=frozenset({"list"}),
            resources=frozenset({"pods"}),
            chance=0.5,
            code=500,
        ),
    )


@pytest.mark.parametrize("data", [None, {}, {"rules": ""}, {"rules": "[]"}])
def test_nothing_said_is_no_fault(data: dict[str, str] | None) -> None:
    assert read_rules(data) == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("fault: drop", r"data\.rules must be a list"),
        ("- drop", r"data\.rules\[0\] must be an object"),
        ("- {fault: nonsense}", r"data\.rules\[0\]\.fault"),
        ("[{fault: drop}, {fault: drop, chance: 2}]", r"data\.rules\[1\]\.chance"),
        ("- {fault: error, code: 200}", r"data\.rules\[0\]\.code"),
        ("- {fault: drop, verb: list}", r"data\.rules\[0\]\.verb "),
        ("- {fault: latency, seconds: soon}", r"data\.rules\[0\]\.seconds"),
        ("- {fault: drop, verbs: list}", r"data\.rules\[0\]\.verbs"),
        ("[", r"data\.rules is not YAML"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_by_its_place(text: str, place: str) -> None:
    with pytest.raises(BadRequest, match=place):
        read_rules({"rules": text})


def test_a_rule_hits_only_what_it_names() -> None:
    rule = FaultRule(
        Fault.DROP, verbs=frozenset({"list"}), resources=frozenset({"deployments.apps"})
    )

    assert rule.hits(read_request("GET", "/apis/apps/v1/namespaces/a/deployments", ""))
    assert not rule.hits(read_request("GET", "/apis/apps/v1/namespaces/a/deployments/x", ""))
    assert not rule.hits(read_request("GET", "/api/v1/pods", ""))


def test_the_rules_can_always_be_taken_back() -> None:
    path = "/api/v1/namespaces/kube-system/configmaps"

    assert is_exempt(read_request("DELETE", f"{path}/clusterspace-sim-faults", ""))
    assert is_exempt(read_request("POST", path, ""))
    assert not is_exempt(read_request("GET", path, ""))
