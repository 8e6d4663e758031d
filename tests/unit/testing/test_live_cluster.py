import pytest

from clusterspace.kube.objects import Object
from clusterspace.testing.live_cluster import is_rolled_out

DONE = {
    "observedGeneration": 2,
    "replicas": 3,
    "updatedReplicas": 3,
    "readyReplicas": 3,
    "availableReplicas": 3,
}


def deployment(**status: int) -> Object:
    return {"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": {**DONE, **status}}


def test_a_deployment_with_all_its_pods_is_rolled_out():
    assert is_rolled_out(deployment())
    assert not is_rolled_out({"metadata": {"generation": 1}, "spec": {"replicas": 1}})


@pytest.mark.parametrize(
    "status",
    [
        # Three are ready, as is asked for: two new ones and the last of the old.
        {"updatedReplicas": 2},
        # The last of the old is still there beside them.
        {"replicas": 4},
        {"readyReplicas": 2},
        {"availableReplicas": 2},
        {"observedGeneration": 1},
    ],
)
def test_a_deployment_in_the_middle_of_a_roll_out_is_not(status: dict[str, int]):
    assert not is_rolled_out(deployment(**status))
