"""StatefulSets: names that stay, one after the other."""

from tests.unit.sim.pretend_api import pretend_cluster
from tests.unit.sim.workload_objects import template, workload

from clusterspace.kube.objects import find_at, labels_of, name_of


async def test_pods_come_in_order_each_after_the_one_before_is_ready() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(workload("StatefulSet", name="db", replicas=3, serviceName="db"))
        order: list[str] = []
        for _ in range(100):
            await cluster.settle(0.05)
            missing = sorted(cluster.pod_names() - set(order))
            assert len(missing) <= 1
            if missing:
                assert cluster.ready_count() == len(order)
                order += missing

        assert order == ["db-0", "db-1", "db-2"]


async def test_a_parallel_set_starts_them_all_at_once() -> None:
    parallel = workload("StatefulSet", name="db", replicas=3, podManagementPolicy="Parallel")
    async with pretend_cluster() as cluster:
        await cluster.api.create(parallel)
        await cluster.settle(0.05)

        assert cluster.pod_names() == {"db-0", "db-1", "db-2"}


async def test_scaling_down_takes_the_highest_first() -> None:
    async with pretend_cluster() as cluster:
        db = await cluster.api.create(workload("StatefulSet", name="db", replicas=3))
        await cluster.settle()

        await cluster.edit(db, 1, "spec", "replicas")
        await cluster.settle()

        ended = [each for each in cluster.api.history if each.startswith("remove Pod")]
        assert ended == ["remove Pod/db-2", "remove Pod/db-1"]


async def test_an_update_replaces_pods_from_the_highest_and_keeps_their_names() -> None:
    async with pretend_cluster() as cluster:
        db = await cluster.api.create(workload("StatefulSet", name="db", replicas=3))
        await cluster.settle()

        await cluster.edit(db, template("web:2"), "spec", "template")
        await cluster.settle()

        ended = [each for each in cluster.api.history if each.startswith("remove Pod")]
        status = cluster.get("StatefulSet", "db")["status"]
        assert ended == ["remove Pod/db-2", "remove Pod/db-1", "remove Pod/db-0"]
        assert cluster.pod_names() == {"db-0", "db-1", "db-2"}
        assert status["currentRevision"] == status["updateRevision"]
        assert status["updatedReplicas"] == 3


async def test_a_partition_holds_the_lower_pods_back() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    async with pretend_cluster() as cluster:
        wanted = workload("StatefulSet", name="db", replicas=3, updateStrategy=strategy)
        db = await cluster.api.create(wanted)
        await cluster.settle()

        await cluster.edit(db, template("web:2"), "spec", "template")
        await cluster.settle()

        images = {name_of(pod): find_at(pod, "spec", "containers")[0] for pod in cluster.pods()}
        assert {name: held["image"] for name, held in images.items()} == {
            "db-0": "web:1",
            "db-1": "web:1",
            "db-2": "web:2",
        }


async def test_a_label_change_replaces_nothing() -> None:
    async with pretend_cluster() as cluster:
        db = await cluster.api.create(workload("StatefulSet", name="db", replicas=2))
        await cluster.settle()

        await cluster.edit(db, {"team": "blue"}, "metadata", "labels")
        await cluster.settle()

        assert not [each for each in cluster.api.history if each.startswith("remove Pod")]


async def test_every_pod_has_a_claim_and_an_index_of_its_own() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    async with pretend_cluster() as cluster:
        wanted = workload("StatefulSet", name="db", replicas=2, volumeClaimTemplates=[claim])
        await cluster.api.create(wanted)
        await cluster.settle()

        claims = {name_of(each) for each in cluster.all("PersistentVolumeClaim")}
        second = cluster.get("Pod", "db-1")
        assert claims == {"data-db-0", "data-db-1"}
        phases = {each["status"]["phase"] for each in cluster.all("PersistentVolumeClaim")}
        assert phases == {"Bound"}
        assert find_at(second, "spec", "volumes")[0]["persistentVolumeClaim"] == {
            "claimName": "data-db-1"
        }
        assert labels_of(second)["apps.kubernetes.io/pod-index"] == "1"
