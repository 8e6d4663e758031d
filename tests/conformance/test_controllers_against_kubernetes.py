"""Controllers of the simulated member and of Kubernetes: the same objects in, the same out."""

from typing import Any

import pytest
from tests.conformance.controller_stage import ELSEWHERE, Room

from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, with_value
from clusterspace.testing.steps import until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

LABELS = {"app": "web"}
PATIENCE = 60.0


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    ports = [{"name": "http", "containerPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or LABELS},
        "spec": {
            "containers": [{"name": "web", "image": "web:1", "ports": ports}],
            "nodeName": ELSEWHERE,
            **spec,
        },
    }


def workload(kind: str, api_version: str = "apps/v1", *, name: str = "web", **spec: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": pod("x", nodeName="")["spec"]}
    selector: Any = {"matchLabels": LABELS}
    if kind == "ReplicationController":
        selector = LABELS
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template, **spec},
    }


def service(name: str = "web", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"team": "blue"}},
        "spec": {"selector": LABELS, "ports": [{"port": 80, "targetPort": "http"}], **spec},
    }


async def counts(room: Room, kind: str, name: str, *fields: str) -> dict[str, Any]:
    status = (await room.get(kind, name)).get("status") or {}
    return {field: status.get(field, 0) for field in fields}


# -- Services ------------------------------------------------------------------------------------


async def subsets_of(room: Room, name: str) -> Any:
    """Return Endpoints by what counts: addresses, ready or not, and ports."""
    found = await room.find("Endpoints", name)
    if found is None:
        return None
    return [
        {
            "ready": sorted(each["ip"] for each in subset.get("addresses") or ()),
            "unready": sorted(each["ip"] for each in subset.get("notReadyAddresses") or ()),
            "ports": subset.get("ports"),
        }
        for subset in found.get("subsets") or ()
    ]


async def slices_of(room: Room, name: str) -> Any:
    return [
        {
            "endpoints": sorted(
                (each["addresses"], each["conditions"]) for each in found.get("endpoints") or ()
            ),
            "ports": found.get("ports") or [],
            "type": found["addressType"],
            "labels": metadata_of(found)["labels"],
            "owner": [
                (each["kind"], each["name"], each["controller"])
                for each in metadata_of(found)["ownerReferences"]
            ],
        }
        for found in await room.all("EndpointSlice", **{"kubernetes.io/service-name": name})
    ]


async def test_a_service_has_the_endpoints_of_its_pods(room: Room) -> None:
    await room.create(service())
    await until_equal(lambda: subsets_of(room, "web"), [], PATIENCE)
    for name, address in (("a", "10.1.0.1"), ("b", "10.1.0.2"), ("other", "10.1.0.3")):
        await room.create(pod(name, {"app": "other"} if name == "other" else None))
        await room.run_pod(name, address=address)
    await room.run_pod("b", address="10.1.0.2", conditions=[])

    port = {"port": 8080, "protocol": "TCP"}
    await until_equal(
        lambda: subsets_of(room, "web"),
        [{"ready": ["10.1.0.1"], "unready": ["10.1.0.2"], "ports": [port]}],
        PATIENCE,
    )
    labels = {
        "team": "blue",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    await until_equal(
        lambda: slices_of(room, "web"),
        [
            {
                "endpoints": [
                    (["10.1.0.1"], {"ready": True, "serving": True, "terminating": False}),
                    (["10.1.0.2"], {"ready": False, "serving": False, "terminating": False}),
                ],
                "ports": [{"name": "", **port}],
                "type": "IPv4",
                "labels": labels,
                "owner": [("Service", "web", True)],
            }
        ],
        PATIENCE,
    )
    managed = metadata_of(await room.get("Endpoints", "web"))["labels"]
    assert managed == {
        "team": "blue",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }

    await room.delete("Service", "web")

    await until(lambda: _is_gone(room, "Endpoints", "web"), PATIENCE)
    await until_equal(lambda: slices_of(room, "web"), [], PATIENCE)


async def _is_gone(room: Room, kind: str, name: str) -> bool:
    return await room.find(kind, name) is None


async def test_pods_that_serve_a_named_port_elsewhere_have_a_subset_of_their_own(
    room: Room,
) -> None:
    second = {"name": "admin", "port": 81, "targetPort": 9090}
    first = {"name": "http", "port": 80, "targetPort": "http"}
    await room.create(service(ports=[first, second], clusterIP="None"))
    await room.create(pod("a"))
    await room.run_pod("a", address="10.1.0.1")
    container = {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 90}]}
    await room.create(pod("b", containers=[container]))
    await room.run_pod("b", address="10.1.0.2")

    async def by_address() -> Any:
        return sorted(
            (each["ready"], sorted((one["name"], one["port"]) for one in each["ports"]))
            for each in await subsets_of(room, "web") or ()
        )

    await until_equal(
        by_address,
        [
            (["10.1.0.1"], [("http", 8080)]),
            (["10.1.0.1", "10.1.0.2"], [("admin", 9090)]),
            (["10.1.0.2"], [("http", 90)]),
        ],
        PATIENCE,
    )

    async def slice_ports() -> Any:
        found = await slices_of(room, "web")
        return sorted(sorted(one["port"] for one in each["ports"]) for each in found)

    await until_equal(slice_ports, [[90, 9090], [8080, 9090]], PATIENCE)
    headless = metadata_of(await room.get("Endpoints", "web"))["labels"]
    assert headless["service.kubernetes.io/headless"] == ""


async def test_endpoints_made_by_hand_are_mirrored_into_slices(room: Room) -> None:
    bare = service("manual")
    del bare["spec"]["selector"]
    await room.create(bare)
    subset = {
        "addresses": [{"ip": "10.2.0.1"}, {"ip": "10.2.0.2"}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    }
    made: Object = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "manual", "labels": {"mine": "yes"}},
        "subsets": [subset],
    }
    await room.create(made)

    def mirrored(*addresses: str) -> Any:
        return [
            {
                "endpoints": [([each], {"ready": True}) for each in addresses],
                "ports": subset["ports"],
                "type": "IPv4",
                "labels": {
                    "mine": "yes",
                    "kubernetes.io/service-name": "manual",
                    "endpointslice.kubernetes.io/managed-by": (
                        "endpointslicemirroring-controller.k8s.io"
                    ),
                },
                "owner": [("Endpoints", "manual", True)],
            }
        ]

    await until_equal(lambda: slices_of(room, "manual"), mirrored("10.2.0.1", "10.2.0.2"), PATIENCE)
    fewer = {**subset, "addresses": [{"ip": "10.2.0.1"}]}
    await room.patch("Endpoints", "manual", {"subsets": [fewer]})
    await until_equal(lambda: slices_of(room, "manual"), mirrored("10.2.0.1"), PATIENCE)

    await room.delete("Endpoints", "manual")

    await until_equal(lambda: slices_of(room, "manual"), [], PATIENCE)


async def test_endpoints_of_nobody_stay_as_they_were_made(room: Room) -> None:
    await room.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "mine"}})
    await room.create(service())
    await until_equal(lambda: subsets_of(room, "web"), [], PATIENCE)

    assert await room.find("Endpoints", "mine") is not None


# -- ReplicaSets and ReplicationControllers ------------------------------------------------------

REPLICATED = [("ReplicaSet", "apps/v1"), ("ReplicationController", "v1")]


@pytest.mark.parametrize(("kind", "version"), REPLICATED, ids=["rs", "rc"])
async def test_pods_are_counted_adopted_and_released(room: Room, kind: str, version: str) -> None:
    await room.create(pod("orphan"))
    await room.create(workload(kind, version, replicas=3, minReadySeconds=0))
    fields = ("replicas", "fullyLabeledReplicas", "readyReplicas", "observedGeneration")
    await until_equal(
        lambda: counts(room, kind, "web", *fields),
        {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 0, "observedGeneration": 1},
        PATIENCE,
    )
    owner = metadata_of(await room.get("Pod", "orphan"))["ownerReferences"]
    assert [(each["kind"], each["name"], each["controller"]) for each in owner] == [
        (kind, "web", True)
    ]
    assert len(await room.all("Pod")) == 3

    await room.run_pod("orphan")
    await until_equal(
        lambda: counts(room, kind, "web", "readyReplicas", "availableReplicas"),
        {"readyReplicas": 1, "availableReplicas": 1},
        PATIENCE,
    )
    await room.patch("Pod", "orphan", {"metadata": {"labels": {"app": "mine"}}})

    async def owner_of_orphan() -> Any:
        return metadata_of(await room.get("Pod", "orphan")).get("ownerReferences")

    await until_equal(owner_of_orphan, None, PATIENCE)
    await until_equal(
        lambda: counts(room, kind, "web", "replicas", "readyReplicas"),
        {"replicas": 3, "readyReplicas": 0},
        PATIENCE,
    )
    assert len(await room.all("Pod")) == 4


@pytest.mark.parametrize(("kind", "version"), REPLICATED, ids=["rs", "rc"])
async def test_a_condition_that_somebody_else_set_stays(
    room: Room, kind: str, version: str
) -> None:
    await room.create(workload(kind, version, replicas=1))
    await until_equal(lambda: counts(room, kind, "web", "replicas"), {"replicas": 1}, PATIENCE)
    theirs = {"type": "Theirs", "status": "True", "reason": "Set", "message": "by hand"}
    await room.patch(kind, "web", {"status": {"conditions": [theirs]}}, subresource="status")
    await room.patch(kind, "web", {"spec": {"replicas": 2}})
    await until_equal(lambda: counts(room, kind, "web", "replicas"), {"replicas": 2}, PATIENCE)

    conditions = find_at(await room.get(kind, "web"), "status", "conditions")
    assert [each["type"] for each in conditions] == ["Theirs"]


# -- volumes -------------------------------------------------------------------------------------


def claim(name: str, **spec: Any) -> Object:
    asked = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": asked, **spec},
    }


def volume(name: str, storage_class: str, size: str = "2Gi", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "hostPath": {"path": "/tmp/x"},
            **spec,
        },
    }


async def phase(room: Room, kind: str, name: str) -> str:
    return str(find_at(await room.get(kind, name), "status", "phase"))


async def test_a_claim_takes_the_smallest_volume_that_will_do_and_leaves_it_behind(
    room: Room,
) -> None:
    ours = room.namespace
    for name, size in (("small", "500Mi"), ("right", "2Gi"), ("large", "9Gi")):
        await room.create(volume(f"{ours}-{name}", ours, size))
    await room.create(claim("data", storageClassName=ours))

    await until_equal(lambda: phase(room, "PersistentVolumeClaim", "data"), "Bound", PATIENCE)
    bound = await room.get("PersistentVolumeClaim", "data")
    assert bound["spec"]["volumeName"] == f"{ours}-right"
    assert bound["status"]["capacity"] == {"storage": "2Gi"}
    assert bound["status"]["accessModes"] == ["ReadWriteOnce", "ReadOnlyMany"]
    assert metadata_of(bound)["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    await until_equal(lambda: phase(room, "PersistentVolume", f"{ours}-right"), "Bound", PATIENCE)
    await until_equal(
        lambda: phase(room, "PersistentVolume", f"{ours}-large"), "Available", PATIENCE
    )

    await room.delete("PersistentVolumeClaim", "data")

    await until(lambda: _is_gone(room, "PersistentVolumeClaim", "data"), PATIENCE)
    await until_equal(
        lambda: phase(room, "PersistentVolume", f"{ours}-right"), "Released", PATIENCE
    )
    for name in ("small", "right", "large"):
        await room.delete("PersistentVolume", f"{ours}-{name}")
        await until(lambda name=name: _is_gone(room, "PersistentVolume", f"{ours}-{name}"))


async def test_a_claim_without_a_volume_or_anybody_who_makes_one_waits(room: Room) -> None:
    await room.create(claim("none", storageClassName=""))
    await room.create(claim("unknown", storageClassName="no-such-class"))
    await room.create(volume(f"{room.namespace}-later", room.namespace))
    await room.create(claim("later", storageClassName=room.namespace))
    await until_equal(lambda: phase(room, "PersistentVolumeClaim", "later"), "Bound", PATIENCE)

    assert await phase(room, "PersistentVolumeClaim", "none") == "Pending"
    assert await phase(room, "PersistentVolumeClaim", "unknown") == "Pending"


async def test_what_is_in_use_stays_until_it_is_not(room: Room) -> None:
    ours = room.namespace
    await room.create(volume(f"{ours}-v", ours))
    await room.create(claim("data", storageClassName=ours))
    mounted = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    await room.create(pod("user", volumes=[mounted]))
    await until_equal(lambda: phase(room, "PersistentVolumeClaim", "data"), "Bound", PATIENCE)

    await room.delete("PersistentVolume", f"{ours}-v")
    await room.delete("PersistentVolumeClaim", "data")
    await room.create(claim("marker", storageClassName=""))
    await room.delete("PersistentVolumeClaim", "marker")
    await until(lambda: _is_gone(room, "PersistentVolumeClaim", "marker"), PATIENCE)
    assert metadata_of(await room.get("PersistentVolumeClaim", "data"))["deletionTimestamp"]
    assert metadata_of(await room.get("PersistentVolume", f"{ours}-v"))["deletionTimestamp"]

    await room.delete("Pod", "user")

    await until(lambda: _is_gone(room, "PersistentVolumeClaim", "data"), PATIENCE)
    await until(lambda: _is_gone(room, "PersistentVolume", f"{ours}-v"), PATIENCE)


async def test_an_attributes_class_stays_while_a_volume_has_it(room: Room) -> None:
    name = f"{room.namespace}-fast"
    await room.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttributesClass",
            "metadata": {"name": name},
            "driverName": "csi.example.com",
            "parameters": {"speed": "9"},
        }
    )
    await room.create(claim("data", storageClassName="", volumeAttributesClassName=name))
    await room.delete("VolumeAttributesClass", name)
    assert metadata_of(await room.get("VolumeAttributesClass", name))["deletionTimestamp"]

    await room.delete("PersistentVolumeClaim", "data")

    await until(lambda: _is_gone(room, "VolumeAttributesClass", name), PATIENCE)


async def test_a_namespace_with_a_claim_in_it_ends(room: Room) -> None:
    await room.create(claim("data", storageClassName=""))
    await room.create(service())

    await room.delete("Namespace", room.namespace)

    await until(lambda: _is_gone(room, "Namespace", room.namespace), PATIENCE)


# -- disruption budgets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 2, 1),
        ({"minAvailable": "50%"}, 2, 1),
        ({"maxUnavailable": 1}, 3, 0),
        ({"maxUnavailable": "50%"}, 2, 1),
        ({"minAvailable": 4}, 4, 0),
    ],
    ids=["least", "least-percent", "most", "most-percent", "all"],
)
async def test_a_budget_counts_healthy_pods(
    room: Room, spec: Object, desired: int, allowed: int
) -> None:
    await room.create(workload("ReplicaSet", replicas=4))
    await until_equal(
        lambda: counts(room, "ReplicaSet", "web", "replicas"), {"replicas": 4}, PATIENCE
    )
    for each in (await room.all("Pod"))[:3]:
        await room.run_pod(name_of(each))
    await room.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": LABELS}, **spec},
        }
    )

    async def status() -> Any:
        told = (await room.get("PodDisruptionBudget", "web"))["status"]
        said = [(each["status"], each["reason"]) for each in told.pop("conditions", ())]
        return {**told, "conditions": said}

    await until_equal(
        status,
        {
            "currentHealthy": 3,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": 4,
            "observedGeneration": 1,
            "conditions": [
                ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
            ],
        },
        PATIENCE,
    )


# -- quotas --------------------------------------------------------------------------------------


def quota(name: str, hard: dict[str, str], **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
    }


async def test_a_quota_tells_what_its_namespace_uses(room: Room) -> None:
    hard = {
        "pods": "9",
        "requests.cpu": "2",
        "limits.memory": "1Gi",
        "services": "5",
        "services.nodeports": "5",
        "persistentvolumeclaims": "5",
        "requests.storage": "10Gi",
        "count/configmaps": "9",
        "count/replicasets.apps": "9",
    }
    await room.create(quota("all", hard))
    await room.create(quota("brief", {"pods": "5"}, scopes=["Terminating"]))
    await room.create(quota("long", {"pods": "5", "memory": "1Gi"}, scopes=["NotTerminating"]))

    async def are_counted() -> bool:
        return all("used" in (each.get("status") or {}) for each in await room.all("ResourceQuota"))

    await until(are_counted)  # until then nothing is let in: what there is, is not known
    resources = {"requests": {"cpu": "300m", "memory": "10Mi"}, "limits": {"memory": "100Mi"}}
    resources["limits"]["cpu"] = "1"
    container = {"name": "web", "image": "web:1", "resources": resources}
    await room.create(pod("a", containers=[container]))
    await room.create(pod("b", containers=[container], activeDeadlineSeconds=100))
    await room.create(service(type="NodePort"))
    await room.create(claim("data", storageClassName=""))

    async def used(name: str) -> Any:
        found = await room.get("ResourceQuota", name)
        status = found.get("status") or {}
        assert not status or status["hard"] == found["spec"]["hard"]
        return status.get("used")

    expected = {
        "pods": "2",
        "requests.cpu": "600m",
        "limits.memory": "200Mi",
        "services": "1",
        "services.nodeports": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        "count/replicasets.apps": "0",
    }

    async def without_config_maps() -> Any:
        found = dict(await used("all") or {})
        found.pop("count/configmaps", None)  # every namespace gets some of its own
        return found

    await until_equal(without_config_maps, expected, PATIENCE)
    await until_equal(lambda: used("brief"), {"pods": "1"}, PATIENCE)
    await until_equal(lambda: used("long"), {"pods": "1", "memory": "10Mi"}, PATIENCE)

    await room.end_pod("a")
    await until_equal(lambda: used("long"), {"pods": "0", "memory": "0"}, PATIENCE)


# -- Deployments ---------------------------------------------------------------------------------

REVISION = "deployment.kubernetes.io/revision"


async def sizes(room: Room) -> dict[str, int]:
    """Return the size of each ReplicaSet, by the image of its pods."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
        for each in await room.all("ReplicaSet")
    }


async def set_image(room: Room, image: str) -> None:
    container = {**pod("x")["spec"]["containers"][0], "image": image}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await room.patch("Deployment", "web", change)


async def run_all(room: Room, count: int) -> None:
    async def enough() -> list[Object]:
        found = await room.all("Pod")
        return found if len(found) == count else []

    for each in await until(enough, PATIENCE):
        await room.run_pod(name_of(each))


async def test_a_deployment_in_a_rollout_is_scaled_in_proportion(room: Room) -> None:
    limits = {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await room.create(workload("Deployment", replicas=10, strategy=limits))
    await run_all(room, 10)
    await until_equal(
        lambda: counts(room, "Deployment", "web", "availableReplicas"),
        {"availableReplicas": 10},
        PATIENCE,
    )
    await set_image(room, "web:2")
    await until_equal(lambda: sizes(room), {"web:1": 8, "web:2": 5}, PATIENCE)

    await room.patch("Deployment", "web", {"spec": {"replicas": 30}})

    await until_equal(lambda: sizes(room), {"web:1": 20, "web:2": 13}, PATIENCE)


async def test_a_rollout_that_is_overtaken_gives_its_pods_up(room: Room) -> None:
    limits = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await room.create(workload("Deployment", replicas=3, strategy=limits))
    await run_all(room, 3)
    await until_equal(
        lambda: counts(room, "Deployment", "web", "availableReplicas"),
        {"availableReplicas": 3},
        PATIENCE,
    )
    await set_image(room, "web:2")
    await until_equal(lambda: sizes(room), {"web:1": 3, "web:2": 1}, PATIENCE)

    await set_image(room, "web:3")

    await until_equal(lambda: sizes(room), {"web:1": 3, "web:2": 0, "web:3": 1}, PATIENCE)
    revisions = {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: metadata_of(each)[
            "annotations"
        ][REVISION]
        for each in await room.all("ReplicaSet")
    }
    assert revisions == {"web:1": "1", "web:2": "2", "web:3": "3"}


async def test_a_deployment_takes_over_a_replica_set_of_its_template(room: Room) -> None:
    made = workload("ReplicaSet", name="by-hand", replicas=1)
    made["metadata"] |= {"labels": LABELS, "annotations": {REVISION: "7", "mine": "yes"}}
    await room.create(made)
    await run_all(room, 1)
    theirs = {"type": "Theirs", "status": "True", "reason": "Set", "message": "by hand"}
    await room.create(workload("Deployment", replicas=1))

    await until_equal(
        lambda: counts(room, "Deployment", "web", "availableReplicas", "updatedReplicas"),
        {"availableReplicas": 1, "updatedReplicas": 1},
        PATIENCE,
    )
    assert await room.names("ReplicaSet") == {"by-hand"}
    adopted = metadata_of(await room.get("ReplicaSet", "by-hand"))
    assert adopted["annotations"][REVISION] == "7"
    assert adopted["annotations"]["mine"] == "yes"
    assert [each["name"] for each in adopted["ownerReferences"]] == ["web"]

    async def revision() -> Any:
        return metadata_of(await room.get("Deployment", "web"))["annotations"].get(REVISION)

    await until_equal(revision, "7", PATIENCE)
    await room.edit(
        "Deployment", "web", lambda found: with_value(found, 2, "spec", "progressDeadlineSeconds")
    )
    present = find_at(await room.get("Deployment", "web"), "status", "conditions")
    status = {"status": {"conditions": [*present, theirs]}}
    await room.patch("Deployment", "web", status, subresource="status")
    await set_image(room, "web:2")

    async def types() -> Any:
        conditions = find_at(await room.get("Deployment", "web"), "status", "conditions")
        return {each["type"]: each.get("reason") for each in conditions}

    await until_equal(
        types,
        {
            "Available": "MinimumReplicasAvailable",
            "Progressing": "ProgressDeadlineExceeded",
            "Theirs": "Set",
        },
        PATIENCE,
    )
    assert await revision() == "8"


# -- namespaces ----------------------------------------------------------------------------------


async def test_the_pods_of_a_namespace_end_before_anything_else(room: Room) -> None:
    kept = pod("kept", nodeName="")
    kept["metadata"]["finalizers"] = ["example.com/hold"]
    await room.create(kept)
    await room.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "used"}})

    await room.delete("Namespace", room.namespace)

    async def conditions() -> dict[str, Any]:
        found = await room.get("Namespace", room.namespace)
        listed = find_at(found, "status", "conditions") or ()
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in listed}

    # What remains is not compared: Kubernetes says "removed" as long as only pods are looked at.
    remaining = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining")
    found = await until(conditions, PATIENCE)
    assert {key: value for key, value in found.items() if key not in remaining} == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
    }
    assert found.keys() >= set(remaining)
    assert "deletionTimestamp" not in metadata_of(await room.get("ConfigMap", "used"))

    await room.patch("Pod", "kept", {"metadata": {"finalizers": None}})

    await until(lambda: _is_gone(room, "Namespace", room.namespace), PATIENCE)
