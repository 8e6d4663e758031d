"""Which policy claims a template, when several could."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.policy_objects import config_maps, policy

from clusterspace.fleet.propagation.bindings import (
    Claim,
    Policy,
    PolicyIndex,
    choose_policy,
    read_policy,
)
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.builders import config_map, deployment

WEB = config_map("web", namespace="shop", labels={"app": "web"})
BY_LABEL = config_maps(labelSelector={"matchLabels": {"app": "web"}})


def own(name: str, *selectors: Object, **spec: Any) -> Policy:
    return read_policy(policy(name, "shop", *(selectors or (config_maps(),)), **spec))


def wide(name: str, *selectors: Object, **spec: Any) -> Policy:
    return read_policy(policy(name, "", *(selectors or (config_maps(),)), **spec))


def leaving(name: str) -> Policy:
    going = with_metadata(policy(name, "shop", config_maps()), deletionTimestamp="now")
    return read_policy(going)


def index(*policies: Policy) -> PolicyIndex:
    made = PolicyIndex()
    for each in policies:
        made.put(each)
    return made


def chosen(*policies: Policy, held: Claim | None = None) -> str | None:
    found = index(*policies).choose(WEB, held)
    return None if found is None else found.key


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        ((own("a"), own("b", priority=1)), "shop/b"),
        ((own("a"), own("b", BY_LABEL)), "shop/b"),
        ((own("a", BY_LABEL), own("b", config_maps(name="web"))), "shop/b"),
        ((own("a", priority=1), own("b", config_maps(name="web"))), "shop/a"),
        ((own("b"), own("a")), "shop/a"),
        ((own("z"), wide("a", config_maps(name="web"), priority=9)), "shop/z"),
        ((own("z", config_maps(name="other")), wide("a")), "a"),
        ((leaving("a"), own("b")), "shop/b"),
        ((own("a", config_maps(name="other")),), None),
        ((), None),
    ],
)
def test_precedence(policies: tuple[Policy, ...], winner: str | None) -> None:
    assert chosen(*policies) == winner
    assert chosen(*reversed(policies)) == winner


def test_a_claim_is_sticky_until_its_policy_goes_or_means_something_else() -> None:
    better = own("better", config_maps(name="web"), priority=9)

    assert chosen(own("held"), better, held=own("held").claim) == "shop/held"
    assert chosen(wide("held"), better, held=wide("held").claim) == "held"
    assert chosen(leaving("held"), better, held=own("held").claim) == "shop/better"
    assert chosen(own("held", BY_LABEL), held=own("held").claim) == "shop/held"
    assert (
        chosen(own("held", config_maps(name="x")), better, held=own("held").claim) == "shop/better"
    )
    assert chosen(better, held=own("held").claim) == "shop/better"
    assert chosen(held=own("held").claim) is None


def test_a_policy_whose_selectors_cannot_be_read_keeps_what_it_has_and_claims_nothing() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
    broken = own("broken", config_maps(labelSelector=wrong))

    assert "spec.resourceSelectors[0].labelSelector" in broken.problem
    assert chosen(broken) is None
    assert chosen(broken, held=broken.claim) == "shop/broken"


def test_policies_of_other_namespaces_and_kinds_are_not_asked() -> None:
    elsewhere = read_policy(policy("a", "other", config_maps()))

    assert chosen(elsewhere) is None
    assert index(own("a")).choose(deployment("web", namespace="shop"), None) is None


def test_a_policy_that_changed_or_went_is_forgotten_as_it_was() -> None:
    made = index(own("a"))
    made.put(own("a", config_maps(name="other")))
    assert made.choose(WEB, None) is None

    made.put(own("a"))
    made.remove("shop/a")
    made.remove("shop/a")
    assert made.choose(WEB, None) is None
    assert list(made) == []


def test_policies_say_whether_they_are_lazy_and_what_they_wait_for() -> None:
    lazy = own("a", activationPreference="Lazy", dependentOverrides=["mirror"])

    assert lazy.is_lazy
    assert lazy.awaited_overrides == ("mirror",)
    assert not own("b").is_lazy
    assert own("a").path.path.endswith("/namespaces/shop/propagationpolicies/a")
    assert wide("a").path.path.endswith("/clusterpropagationpolicies/a")


policies = st.builds(
    lambda name, priority, selector: own(name, selector, priority=priority),
    st.sampled_from("abcd"),
    st.integers(-1, 1),
    st.sampled_from([config_maps(), BY_LABEL, config_maps(name="web"), config_maps(name="no")]),
)


@given(st.lists(policies, max_size=4, unique_by=lambda each: each.key), st.randoms())
def test_the_winner_does_not_depend_on_the_order_policies_came_in(
    several: list[Policy], random: Any
) -> None:
    shuffled = random.sample(several, len(several))

    winner = choose_policy(WEB, several)

    assert choose_policy(WEB, shuffled) == winner
    assert (winner is None) == (not any(each.may_claim(WEB) for each in several))
    if winner is not None:
        rank = (winner.priority, winner.precision(WEB))
        assert all(
            (each.priority, each.precision(WEB)) <= rank for each in several if each.may_claim(WEB)
        )


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        pytest.param(
            (own("low"), own("high", priority=1, preemption="Always")),
            "shop/high",
            id="High-priority PropagationPolicy preempts low-priority PropagationPolicy",
        ),
        pytest.param((own("low"), own("high", priority=1)), "shop/low", id="only if it says so"),
        pytest.param(
            (own("low"), own("equal", preemption="Always")), "shop/low", id="not by equal priority"
        ),
        pytest.param(
            (own("low"), wide("high", priority=9, preemption="Always")),
            "shop/low",
            id="never a cluster-wide one",
        ),
        pytest.param(
            (own("low", priority=2), own("was-high", priority=1, preemption="Always")),
            "shop/low",
            id="reduced priority",
        ),
    ],
)
def test_a_policy_that_preempts_takes_what_another_has(
    policies: tuple[Policy, ...], winner: str
) -> None:
    assert chosen(*policies, held=policies[0].claim) == winner


def test_propagation_policy_preempts_cluster_propagation_policy() -> None:
    low, high = wide("low", priority=9), wide("high", priority=10, preemption="Always")

    assert chosen(low, own("own", preemption="Always"), held=low.claim) == "shop/own"
    assert chosen(low, own("own"), held=low.claim) == "low"
    assert chosen(low, high, held=low.claim) == "high"
    assert chosen(low, high, own("own", preemption="Always"), held=low.claim) == "shop/own"
