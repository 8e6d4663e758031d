"""What the server decides itself when an object is created, replaced or reported on."""

import pytest
from tests.admitted import admitted

from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import normalize
from clusterspace.builtins.strategies import (
    Creation,
    prepare_for_create,
    prepare_for_status_update,
    prepare_for_update,
    strategy_for,
)
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupKind, GroupVersionKind

NOW = "2026-01-01T00:00:00Z"
CREATION = Creation(uid="u-1", now=NOW, username="alice", groups=("staff",))


def known(kind: str) -> GroupVersionKind:
    api_version, name = kind.split()
    return GroupVersionKind.of(api_version, name)


def ready(kind: str, **fields):
    return apply_defaults(known(kind), normalize(fields, known(kind)).object)


def created(kind: str, **fields):
    return prepare_for_create(known(kind), ready(kind, **fields), CREATION)


def updated(kind: str, new, old):
    return prepare_for_update(known(kind), ready(kind, **new), ready(kind, **old))


CONTAINERS = [{"name": "a", "image": "b"}]


@pytest.mark.parametrize(
    ("kind", "given", "path", "expected"),
    [
        ("apps/v1 Deployment", {"status": {"replicas": 4}}, ["status"], {}),
        ("apps/v1 Deployment", {"metadata": {"generation": 7}}, ["metadata", "generation"], 1),
        ("v1 ConfigMap", {"metadata": {"generation": 7}}, ["metadata", "generation"], 7),
        ("v1 ConfigMap", {}, ["metadata", "generation"], None),
        (
            "v1 ConfigMap",
            {"metadata": {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 3}},
            ["metadata"],
            {},
        ),
        ("v1 Node", {"status": {"phase": "Running"}}, ["status", "phase"], "Running"),
        ("v1 Namespace", {}, ["spec", "finalizers"], ["kubernetes"]),
        ("v1 Namespace", {"status": {"phase": "Terminating"}}, ["status"], {"phase": "Active"}),
        (
            "v1 Pod",
            {"spec": {"containers": CONTAINERS}, "status": {"phase": "Running"}},
            ["status"],
            {"phase": "Pending", "qosClass": "BestEffort"},
        ),
        (
            "apps/v1 DaemonSet",
            {},
            ["metadata", "annotations"],
            {"deprecated.daemonset.template.generation": "1"},
        ),
        (
            "certificates.k8s.io/v1 CertificateSigningRequest",
            {"spec": {"username": "root", "signerName": "example.com/s"}},
            ["spec"],
            {
                "request": None,
                "signerName": "example.com/s",
                "username": "alice",
                "groups": ["staff"],
            },
        ),
        (
            "v1 PersistentVolume",
            {},
            ["status"],
            {"phase": "Pending", "lastPhaseTransitionTime": NOW},
        ),
        (
            "v1 Service",
            {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
            ["spec", "ipFamilies"],
            ["IPv4"],
        ),
        (
            "v1 Service",
            {"spec": {"clusterIP": "None"}},
            ["spec", "ipFamilyPolicy"],
            "RequireDualStack",
        ),
        ("v1 Service", {"spec": {"clusterIP": "None"}}, ["spec", "clusterIPs"], ["None"]),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            {"spec": {"versions": [{"name": "v1", "storage": True}]}},
            ["status", "storedVersions"],
            ["v1"],
        ),
        (
            "v1 PersistentVolumeClaim",
            {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}},
            ["spec", "dataSourceRef"],
            {"apiGroup": None, "kind": "PersistentVolumeClaim", "name": "a"},
        ),
        ("v1 LimitRange", {}, ["metadata", "name"], "u-1"),
    ],
)
def test_a_new_object_starts_as_the_server_starts_it(kind, given, path, expected) -> None:
    assert find_at(created(kind, **given), *path) == expected


def test_a_job_selects_its_pods_by_its_uid() -> None:
    job = created("batch/v1 Job", metadata={"name": "j", "labels": {"mine": "yes"}})

    labels = {
        "batch.kubernetes.io/controller-uid": "u-1",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u-1",
        "job-name": "j",
    }
    assert find_at(job, "spec", "template", "metadata", "labels") == labels
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert job["metadata"]["labels"] == {"mine": "yes"}


def test_a_job_that_selects_by_hand_is_left_alone() -> None:
    spec = {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}

    job = created("batch/v1 Job", metadata={"name": "j"}, spec=spec)

    assert job["spec"]["selector"] == {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("kind", "new", "old", "generation"),
    [
        ("apps/v1 Deployment", {"spec": {"replicas": 2}}, {"spec": {"replicas": 1}}, 4),
        ("apps/v1 Deployment", {"metadata": {"labels": {"a": "b"}}}, {}, 3),
        ("apps/v1 Deployment", {"metadata": {"annotations": {"a": "b"}}}, {}, 4),
        ("apps/v1 Deployment", {"status": {"replicas": 1}}, {}, 3),
        ("apps/v1 ReplicaSet", {"metadata": {"annotations": {"a": "b"}}}, {}, 3),
        ("discovery.k8s.io/v1 EndpointSlice", {"metadata": {"labels": {"a": "b"}}}, {}, 4),
        ("v1 ConfigMap", {"data": {"a": "b"}}, {}, 3),
    ],
)
def test_the_generation_moves_with_what_is_asked_for(kind, new, old, generation) -> None:
    held = {**old, "metadata": {**old.get("metadata", {}), "generation": 3}}

    assert updated(kind, new, held)["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("kind", "new", "old", "path", "expected"),
    [
        (
            "apps/v1 Deployment",
            {"status": {"replicas": 9}},
            {"status": {"replicas": 1}},
            ["status"],
            {"replicas": 1},
        ),
        (
            "v1 Namespace",
            {"spec": {"finalizers": []}},
            {"spec": {"finalizers": ["kubernetes"]}},
            ["spec", "finalizers"],
            ["kubernetes"],
        ),
        (
            "certificates.k8s.io/v1 CertificateSigningRequest",
            {"spec": {"username": "root"}},
            {"spec": {"username": "alice"}},
            ["spec", "username"],
            "alice",
        ),
        (
            "v1 Service",
            {"spec": {"ports": [{"port": 80}], "type": "NodePort"}},
            {
                "spec": {
                    "ports": [{"port": 80, "nodePort": 30080}],
                    "type": "NodePort",
                    "clusterIP": "10.96.0.9",
                    "clusterIPs": ["10.96.0.9"],
                }
            },
            ["spec", "clusterIPs"],
            ["10.96.0.9"],
        ),
        (
            "apps/v1 DaemonSet",
            {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}},
            {"metadata": {"annotations": {"deprecated.daemonset.template.generation": "4"}}},
            ["metadata", "annotations"],
            {"deprecated.daemonset.template.generation": "5"},
        ),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            {"spec": {"versions": [{"name": "v2", "storage": True}]}},
            {"status": {"storedVersions": ["v1"]}},
            ["status", "storedVersions"],
            ["v1", "v2"],
        ),
        (
            "v1 ConfigMap",
            {"metadata": {"creationTimestamp": "1999-01-01T00:00:00Z"}},
            {"metadata": {"creationTimestamp": NOW}},
            ["metadata", "creationTimestamp"],
            NOW,
        ),
    ],
)
def test_a_replacement_keeps_what_is_not_the_users_to_change(
    kind, new, old, path, expected
) -> None:
    assert find_at(updated(kind, new, old), *path) == expected


def test_a_service_keeps_its_node_ports_when_they_are_left_out() -> None:
    exposed = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}

    service = updated(
        "v1 Service", {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}, exposed
    )

    assert service["spec"]["ports"][0]["nodePort"] == 30080


def test_a_status_update_changes_the_status_and_never_the_spec() -> None:
    old = ready("apps/v1 Deployment", metadata={"generation": 3}, spec={"replicas": 1})
    new = ready("apps/v1 Deployment", spec={"replicas": 9}, status={"replicas": 1})

    written = prepare_for_status_update(new, old)

    assert written["spec"]["replicas"] == 1
    assert written["status"] == {"replicas": 1}
    assert written["metadata"]["generation"] == 3


@pytest.mark.parametrize(
    ("kind", "given", "path", "expected"),
    [
        (
            "v1 PersistentVolumeClaim",
            {},
            ["metadata", "finalizers"],
            ["kubernetes.io/pvc-protection"],
        ),
        (
            "v1 Node",
            {},
            ["spec", "taints"],
            [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
        ),
        ("v1 Pod", {"spec": {"containers": CONTAINERS}}, ["spec", "priority"], 0),
        (
            "v1 Pod",
            {"spec": {"priorityClassName": "system-node-critical"}},
            ["spec", "priority"],
            2_000_001_000,
        ),
        (
            "v1 Pod",
            {"spec": {"tolerations": [{"operator": "Exists"}]}},
            ["spec", "tolerations"],
            [{"operator": "Exists"}],
        ),
    ],
)
def test_the_built_in_plug_ins_leave_their_marks(kind, given, path, expected) -> None:
    new = admitted(known(kind), ready(kind, **given))

    assert find_at(new, *path) == expected


def test_a_pod_stays_five_minutes_on_a_node_that_went_away() -> None:
    pod = admitted(known("v1 Pod"), ready("v1 Pod", spec={"containers": CONTAINERS}))

    assert [each["key"] for each in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert all(each["tolerationSeconds"] == 300 for each in pod["spec"]["tolerations"])


@pytest.mark.parametrize(
    ("kind", "creates", "unconditional"),
    [
        (GroupKind("", "ConfigMap"), False, True),
        (GroupKind("coordination.k8s.io", "Lease"), True, False),
        (GroupKind("rbac.authorization.k8s.io", "Role"), True, True),
        (GroupKind("policy", "PodDisruptionBudget"), False, False),
    ],
)
def test_each_kind_says_what_a_put_may_do(kind, creates, unconditional) -> None:
    strategy = strategy_for(kind)

    assert (strategy.creates_on_update, strategy.updates_unconditionally) == (
        creates,
        unconditional,
    )
