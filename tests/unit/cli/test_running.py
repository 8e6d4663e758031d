"""What people are told when something goes wrong."""

import errno
import os

import pytest

from clusterspace.cli.running import sentence_of
from clusterspace.errors import (
    CannotJoin,
    ClusterUnreachable,
    Forbidden,
    NotFound,
    UnusableKubeconfig,
)


def os_error(number: int, file: str) -> OSError:
    return OSError(number, os.strerror(number), file)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            UnusableKubeconfig("there is no such file", place=".clusterspace/kubeconfig"),
            "start a fleet with `clusterspace up`",
        ),
        (ClusterUnreachable("hub", "refused the connection", was_sent=False), "does it run?"),
        (NotFound('clusters.cluster.karmada.io "west" not found'), "`clusterspace clusters`"),
        (os_error(errno.ENOSPC, "store.db"), "make room"),
        (os_error(errno.EACCES, "/var/lib/x"), "choose a place that you may write to"),
    ],
)
def test_what_we_can_help_with_comes_with_a_next_step(error: Exception, told: str) -> None:
    assert told in sentence_of(error).partition("; ")[2]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (CannotJoin("west", "it is a member already"), None),
        (UnusableKubeconfig("there is no such file", place="west.yaml"), None),
        (ClusterUnreachable("west", "refused the connection", was_sent=False), None),
        (Forbidden("you may not"), "you may not"),
        (os_error(errno.ENOENT, "/nowhere"), "/nowhere: no such file or directory"),
    ],
)
def test_the_rest_is_told_as_it_is(error: Exception, sentence: str | None) -> None:
    assert sentence_of(error) == (sentence or str(error))
