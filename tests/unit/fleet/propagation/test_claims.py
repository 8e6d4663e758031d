"""The marks of a claim: put on, read, taken off."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clusterspace.apis import stamps
from clusterspace.fleet.propagation.claims import (
    Claim,
    by_claim,
    claim_of,
    is_marked,
    permanent_id,
    with_claim,
    without_claim,
)
from clusterspace.kube.objects import annotations_of, labels_of
from clusterspace.testing.builders import config_map

OWN = Claim("id-1", "policy", "shop")
WIDE = Claim("id-2", "policy")

words = st.dictionaries(st.sampled_from(["app", "tier", "example.com/x"]), st.text(max_size=5))
claims = st.sampled_from([OWN, WIDE, Claim("id-3", "other", "else")])


def test_the_marks_are_karmadas() -> None:
    own, wide = with_claim(config_map("web"), OWN), with_claim(config_map("web"), WIDE)

    assert labels_of(own) == {stamps.POLICY_ID: "id-1"}
    assert annotations_of(own) == {stamps.POLICY_NAMESPACE: "shop", stamps.POLICY_NAME: "policy"}
    assert labels_of(wide) == {stamps.CLUSTER_POLICY_ID: "id-2"}
    assert annotations_of(wide) == {stamps.CLUSTER_POLICY_NAME: "policy"}


@settings(max_examples=60)
@given(words, words, st.lists(claims, min_size=1, max_size=3))
def test_the_last_claim_holds_and_taking_it_off_leaves_what_was_there(
    labels: dict[str, Any], annotations: dict[str, Any], held: list[Claim]
) -> None:
    before = config_map("web", labels=labels, annotations=annotations)
    after = before
    for claim in held:
        after = with_claim(after, claim)

    assert claim_of(after) == held[-1]
    assert list(by_claim(after)) == [held[-1].key]
    free = without_claim(after)
    assert not is_marked(free)
    assert labels_of(free) == labels
    assert annotations_of(free) == annotations
    assert "labels" in before["metadata"]


def test_half_a_claim_is_none_and_is_a_mark_all_the_same() -> None:
    half = config_map("web", labels={stamps.POLICY_ID: "id-1"})

    assert claim_of(half) is None
    assert is_marked(half)
    assert not is_marked(config_map("web"))


def test_keys_tell_the_two_kinds_of_policies_apart() -> None:
    assert (OWN.key, WIDE.key) == ("shop/policy", "policy")


def test_no_two_ids_are_the_same() -> None:
    random = Random(1)

    assert len({permanent_id(random) for _ in range(100)}) == 100
