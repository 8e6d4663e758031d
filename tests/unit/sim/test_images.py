"""Images that cannot be pulled, and pods that wait for them."""

import pytest
from tests.unit.sim.pretend_api import pretend_cluster
from tests.unit.sim.workload_objects import pod

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.sim.images import lacks_image, waiting_for, without_image

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    "image",
    [
        "nginx",
        "nginx:1.19.0",
        "library/fake",
        "registry.example.com:5000/team/web_app:v1",
        "registry.k8s.io/pause@sha256:" + "a" * 64,
        "[::1]:5000/web",
        "",
    ],
)
def test_an_ordinary_image_is_there(image: str) -> None:
    assert waiting_for(image) is None


@pytest.mark.parametrize(
    ("image", "reason", "says"),
    [
        ("fake/nginx:1.19.0", "ImagePullBackOff", 'Back-off pulling image "fake/nginx:1.19.0"'),
        ("registry.invalid/web:1", "ImagePullBackOff", "ErrImagePull"),
        ("registry.invalid:5000/web", "ImagePullBackOff", "ErrImagePull"),
        ("Nginx", "InvalidImageName", "invalid reference format"),
        ("nginx:", "InvalidImageName", "invalid reference format"),
        ("http://nginx", "InvalidImageName", "invalid reference format"),
    ],
)
def test_an_image_that_nobody_has_keeps_its_container_waiting(
    image: str, reason: str, says: str
) -> None:
    waiting = (waiting_for(image) or {})["waiting"]

    assert waiting["reason"] == reason
    assert says in waiting["message"]


def containers(*images: str) -> list[Object]:
    return [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]


def test_a_pod_that_waits_for_an_image_is_pending_on_its_node() -> None:
    waiting = without_image(
        pod(node="a", containers=containers("fake/web", "nginx")), "172.0.0.1", NOW
    )
    reasons = [
        find_at(each, "state", "waiting", "reason")
        for each in waiting["status"]["containerStatuses"]
    ]

    assert waiting["status"]["phase"] == "Pending"
    assert reasons == ["ImagePullBackOff", "ContainerCreating"]
    ready = find_condition(waiting["status"]["conditions"], "Ready") or {}
    assert ready["reason"] == "ContainersNotReady"
    assert ready["message"] == "containers with unready status: [c0 c1]"
    assert without_image(waiting, "172.0.0.1", NOW + 60) == waiting, "looking again changes nothing"


def test_an_init_container_holds_up_all_others() -> None:
    held = pod(node="a", containers=containers("nginx"), initContainers=containers("fake/setup"))
    waiting = without_image(held, "172.0.0.1", NOW)["status"]

    assert lacks_image(held)
    assert find_at(waiting["initContainerStatuses"][0], "state", "waiting", "reason") == (
        "ImagePullBackOff"
    )
    assert find_at(waiting["containerStatuses"][0], "state", "waiting", "reason") == (
        "PodInitializing"
    )


async def test_a_pod_whose_image_is_mended_starts() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(pod(containers=containers("fake/web")))
        await cluster.settle()
        waiting = cluster.get("Pod", "p")
        assert find_at(waiting, "status", "phase") == "Pending"

        await cluster.edit(waiting, containers("nginx"), "spec", "containers")
        await cluster.settle()

        assert find_at(cluster.get("Pod", "p"), "status", "phase") == "Running"
