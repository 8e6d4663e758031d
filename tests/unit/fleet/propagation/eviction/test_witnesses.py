"""When a Push cluster that looks dead is believed to be."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from clusterspace.apis.witnesses import FRESH_SECONDS, LEASE_NAMESPACE, WitnessReport, lease_of
from clusterspace.client.resources import read_raw_object
from clusterspace.client.watch import Batch, EventType, ObjectChange
from clusterspace.controllers.informers import HubCaches
from clusterspace.controllers.leases import LEASES
from clusterspace.fleet.propagation.eviction.witnesses import (
    AGREED,
    DEAF,
    REACHED,
    UNSEEN,
    Witnesses,
    is_doubted,
    judge,
)
from clusterspace.kube.objects import with_metadata
from clusterspace.testing.clocks import ManualClock

WEST = "uid-of-west"


def away(name: str, heard: int = 3, asked: int = 3) -> WitnessReport:
    return WitnessReport(name, f"server {name}", frozenset({WEST}), frozenset(), asked, heard)


def reaching(name: str, heard: int = 3) -> WitnessReport:
    return WitnessReport(name, f"server {name}", frozenset(), frozenset({WEST}), 3, heard)


IDLE = WitnessReport("c", "server c", others_asked=3, others_heard=3)


@pytest.mark.parametrize(
    ("reports", "needed", "status", "reason"),
    [
        ([], 1, "Unknown", UNSEEN),
        ([IDLE], 1, "Unknown", UNSEEN),
        ([away("a")], 1, "True", AGREED),
        ([away("a")], 2, "Unknown", UNSEEN),
        ([away("a"), away("b")], 2, "True", AGREED),
        ([away("a", heard=0)], 1, "Unknown", DEAF),
        ([away("a", heard=0, asked=0)], 1, "Unknown", DEAF),
        ([away("a", heard=0), away("b")], 1, "True", AGREED),
        ([away("a", heard=0), away("b")], 2, "Unknown", UNSEEN),
        ([reaching("a")], 1, "False", REACHED),
        # One that reaches it outweighs all others, however few it hears.
        ([away("a"), away("b"), reaching("c", heard=0)], 1, "False", REACHED),
    ],
)
def test_others_have_to_agree(
    reports: list[WitnessReport], needed: int, status: str, reason: str
) -> None:
    verdict = judge(WEST, reports, needed)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_who_said_what_is_in_the_message() -> None:
    assert "server a" in judge(WEST, [reaching("a")], 1).message
    assert "server a, server b" in judge(WEST, [away("b"), away("a")], 1).message
    assert "fleet API server" in judge(WEST, [], 1).message
    assert "server c has no way to ask it" in judge(WEST, [IDLE], 1).message


def test_what_is_said_of_one_cluster_is_said_of_no_other() -> None:
    assert judge("uid-of-east", [away("a")], 1).status == "Unknown"


@pytest.mark.parametrize(
    ("mode", "ready", "expected"),
    [
        ("Push", "False", True),
        ("Push", "Unknown", True),
        ("Push", "True", False),
        ("Push", "", False),
        ("Pull", "Unknown", False),
    ],
)
def test_doubted_are_push_clusters_that_were_heard_of(
    mode: str, ready: str, expected: bool
) -> None:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    assert (
        is_doubted({"spec": {"syncMode": mode}, "status": {"conditions": conditions}}) is expected
    )


class Hub:
    """Leases as they come from a hub, and who follows them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        connection = SimpleNamespace(clock=self.clock, random=None)
        followed: Any = SimpleNamespace(cluster="hub", connection=connection)
        self.witnesses = HubCaches(followed).shared(Witnesses)
        self.version = 0

    def write(self, report: WitnessReport) -> None:
        self.version += 1
        lease = lease_of(report, self.clock.now())
        self.show(with_metadata(lease, resourceVersion=str(self.version), uid="u"))

    def show(self, lease: Any, kind: EventType = EventType.MODIFIED) -> None:
        raw = read_raw_object(msgspec.json.encode(lease))
        self.witnesses.leases._take(Batch((ObjectChange(kind, raw),), is_whole=True))


def test_what_is_seen_first_may_be_of_any_age_and_counts_when_it_is_renewed() -> None:
    hub = Hub()
    hub.write(away("a"))
    assert hub.witnesses.judge(WEST, 1).status == "Unknown"
    hub.write(away("a"))
    assert hub.witnesses.judge(WEST, 1).status == "True"


def test_old_words_prove_nothing_whatever_their_clock_says() -> None:
    hub = Hub()
    hub.write(away("a"))
    hub.write(away("a"))
    hub.clock.jump(-86_400.0)
    assert hub.witnesses.judge(WEST, 1).status == "True"
    hub.clock.freeze(FRESH_SECONDS + 1)
    assert hub.witnesses.judge(WEST, 1).status == "Unknown"
    hub.write(away("a"))
    assert hub.witnesses.judge(WEST, 1).status == "True"


def test_the_same_state_shown_again_is_no_news() -> None:
    hub = Hub()
    hub.write(away("a"))
    lease = with_metadata(lease_of(away("a"), 0.0), resourceVersion="1", uid="u")
    hub.show(lease)
    assert hub.witnesses.reports() == []


def test_a_lease_that_is_gone_or_of_another_kind_says_nothing() -> None:
    hub = Hub()
    hub.write(away("a"))
    hub.write(away("a"))
    lease = with_metadata(lease_of(away("a"), 0.0), resourceVersion="9", uid="u")
    hub.show(lease, EventType.DELETED)
    assert hub.witnesses.reports() == []
    assert hub.witnesses.leases.path.namespace == LEASE_NAMESPACE
    assert hub.witnesses.leases.path.resource == LEASES
