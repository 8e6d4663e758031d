"""What a client is told when a cluster could not be asked."""

import pytest

from clusterspace.apiserver.http.chain import cluster_refusal
from clusterspace.errors import (
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
)


@pytest.mark.parametrize(
    ("error", "code", "retry_after"),
    [
        (ClusterUnreachable("west", "refused", was_sent=False), 503, 1),
        (ClusterUnreachable("west", "broke", was_sent=True), 503, 0),
        (ClusterMisbehaved("west", "HTML", code=404), 503, 0),
        (CredentialsUnusable("west", "no token"), 503, 0),
        (ClusterTimeout("west", "late"), 504, 0),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_never_not_found(
    error: ClusterError, code: int, retry_after: int
):
    refusal = cluster_refusal(error)

    assert refusal.code == code
    assert "cluster west" in refusal.message
    assert refusal.details is not None
    assert refusal.details.retry_after_seconds == retry_after
