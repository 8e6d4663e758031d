"""May I, asked of a fleet: whose word counts."""

import json
from typing import Any

import pytest

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.answers import reviews
from clusterspace.fleet.gateway.answers.reviews import Opinion
from clusterspace.fleet.gateway.merge.failures import Reply


def test_a_right_that_every_cluster_gives_is_the_fleet_s() -> None:
    status = reviews.merge_opinions(
        [Opinion("karmada", True, "a role"), Opinion("east", True, "another")]
    )

    assert status == {"allowed": True, "reason": "a role"}


def test_a_right_that_one_cluster_refuses_is_not_and_it_is_said_who_refuses() -> None:
    opinions = [Opinion("karmada", True), Opinion("east", False, "no role"), Opinion("west", True)]

    status = reviews.merge_opinions(opinions)

    assert status == {"allowed": False, "reason": "denied in east; allowed in karmada, west"}


def test_a_right_that_nobody_gives_is_refused_in_the_first_one_s_words() -> None:
    status = reviews.merge_opinions(
        [Opinion("karmada", False, "no role"), Opinion("east", False, "none")]
    )

    assert status == {"allowed": False, "reason": "no role"}


def test_a_large_fleet_is_counted_rather_than_named() -> None:
    opinions = [Opinion(f"m{number:02}", number > 0) for number in range(40)]

    reason = reviews.merge_opinions(opinions)["reason"]

    assert reason.startswith("denied in m00; allowed in m01, m02")
    assert reason.endswith("m10 and 29 more")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"status":{"allowed":"yes"}}'])
def test_an_answer_that_decides_nothing_is_no_opinion(body: bytes) -> None:
    with pytest.raises(ClusterMisbehaved, match="east"):
        reviews.read_opinion(Reply("east", 201, body=body))


def test_an_opinion_is_read_with_its_reason() -> None:
    status: dict[str, Any] = {"allowed": False, "reason": "no role"}

    opinion = reviews.read_opinion(Reply("east", 201, body=json.dumps({"status": status}).encode()))

    assert opinion == Opinion("east", is_allowed=False, reason="no role")
