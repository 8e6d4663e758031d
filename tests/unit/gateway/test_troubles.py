"""Which clusters are left out because they could not be reached a moment ago."""

import pytest

from clusterspace.errors import (
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Forbidden,
)
from clusterspace.gateway.troubles import Troubles
from clusterspace.testing.clocks import ManualClock

DEAD = ClusterUnreachable("west", "refused", was_sent=False)


@pytest.mark.parametrize("failure", [DEAD, ClusterTimeout("west", "late")])
async def test_a_cluster_that_could_not_be_asked_is_in_trouble(failure: Exception):
    troubles = Troubles(ManualClock())

    troubles.note("west", failure)

    assert troubles.find("west") is failure
    assert troubles.find("east") is None


@pytest.mark.parametrize("answer", [None, Forbidden("no"), ClusterMisbehaved("west", "HTML")])
async def test_whatever_it_answers_a_cluster_that_answers_is_out_of_trouble(
    answer: Exception | None,
):
    troubles = Troubles(ManualClock())
    troubles.note("west", DEAD)

    troubles.note("west", answer)

    assert troubles.find("west") is None
