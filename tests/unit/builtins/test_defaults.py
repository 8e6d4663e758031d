"""What is filled in when the user left it out, kind by kind."""

import pytest

from clusterspace.builtins import wire_types
from clusterspace.builtins.defaults import apply, governance, pods, workloads
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.defaults.pods import image_pull_policy
from clusterspace.builtins.normal_form import normalize
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import GroupVersionKind


def defaulted(kind: str, **fields):
    api_version, name = kind.split()
    known = GroupVersionKind.of(api_version, name)
    filled = apply_defaults(known, normalize(fields, known).object)
    assert apply_defaults(known, filled) is filled, "filling in twice must change nothing"
    return filled


def pod_spec(**spec):
    return defaulted("v1 Pod", spec={"containers": [{"name": "a", "image": "b"}], **spec})["spec"]


def container(**fields):
    return pod_spec(containers=[{"name": "a", "image": "b", **fields}])["containers"][0]


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a"}]}}

FILLED_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "a",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
}


def test_a_minimal_pod_gets_what_a_template_gets_and_service_links() -> None:
    assert pod_spec(containers=[{"name": "a"}]) == {
        **FILLED_TEMPLATE["spec"],
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("", "Always"),
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry.example.com:5000/a/b", "Always"),
        ("registry.example.com:5000/a/b:v1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
    ],
)
def test_only_a_moving_tag_is_pulled_every_time(image, policy) -> None:
    assert image_pull_policy(image) == policy


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        (
            {"livenessProbe": {"httpGet": {"port": 80}}},
            {
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                }
            },
        ),
        ({"ports": [{"containerPort": 80}]}, {"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            {
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}
                        },
                    }
                ]
            },
        ),
        (
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0.0005"}}},
            {
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "1m", "memory": "1Gi"},
                }
            },
        ),
        (
            {"lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        ),
    ],
)
def test_a_container_of_a_pod_is_completed(given, filled) -> None:
    assert {key: container(**given)[key] for key in filled} == filled


def test_the_ports_of_a_pod_on_the_host_network_are_the_hosts() -> None:
    ports = [{"containerPort": 80}]

    spec = pod_spec(hostNetwork=True, containers=[{"name": "a", "ports": ports}])

    assert spec["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


def test_a_template_keeps_limits_without_requests() -> None:
    limited = {"name": "a", "resources": {"limits": {"cpu": "1"}}}

    deployment = defaulted(
        "apps/v1 Deployment", spec={"template": {"spec": {"containers": [limited]}}}
    )

    spec = find_at(deployment, "spec", "template", "spec")
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert "enableServiceLinks" not in spec


@pytest.mark.parametrize(
    ("volume", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"image": {"reference": "a:latest"}},
            {"image": {"reference": "a:latest", "pullPolicy": "Always"}},
        ),
    ],
)
def test_a_volume_is_completed(volume, filled) -> None:
    spec = pod_spec(volumes=[{"name": "v", **volume}])

    assert spec["volumes"] == [{"name": "v", **filled}]


def test_the_old_and_the_new_name_of_the_service_account_agree() -> None:
    for field in ("serviceAccount", "serviceAccountName"):
        spec = pod_spec(**{field: "builder"})

        assert spec["serviceAccount"] == spec["serviceAccountName"] == "builder"


@pytest.mark.parametrize(
    ("kind", "given", "path", "filled"),
    [
        (
            "apps/v1 Deployment",
            {"spec": {"template": TEMPLATE}},
            ["spec"],
            {
                "replicas": 1,
                "selector": None,
                "template": FILLED_TEMPLATE,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
        ),
        (
            "apps/v1 Deployment",
            {"spec": {"strategy": {"type": "Recreate"}}},
            ["spec", "strategy"],
            {"type": "Recreate"},
        ),
        (
            "apps/v1 DaemonSet",
            {},
            ["spec", "updateStrategy"],
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        ),
        (
            "apps/v1 StatefulSet",
            {"spec": {"updateStrategy": {"type": "RollingUpdate"}}},
            ["spec", "updateStrategy"],
            {"type": "RollingUpdate"},
        ),
        (
            "apps/v1 StatefulSet",
            {},
            ["spec", "updateStrategy"],
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
        (
            "apps/v1 StatefulSet",
            {"spec": {"volumeClaimTemplates": [{"metadata": {"name": "d"}}]}},
            ["spec", "volumeClaimTemplates"],
            [
                {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "metadata": {"name": "d"},
                    "spec": {"resources": {}, "volumeMode": "Filesystem"},
                    "status": {"phase": "Pending"},
                }
            ],
        ),
        ("batch/v1 Job", {}, ["spec", "completions"], 1),
        ("batch/v1 Job", {"spec": {"parallelism": 2}}, ["spec", "completions"], None),
        (
            "batch/v1 Job",
            {"spec": {"backoffLimitPerIndex": 1}},
            ["spec", "backoffLimit"],
            2**31 - 1,
        ),
        ("batch/v1 Job", {"spec": {"template": TEMPLATE}}, ["metadata", "labels"], {"a": "b"}),
        ("batch/v1 CronJob", {}, ["spec", "successfulJobsHistoryLimit"], 3),
        ("batch/v1 CronJob", {}, ["spec", "jobTemplate", "spec", "completions"], None),
        (
            "v1 ReplicationController",
            {"spec": {"template": TEMPLATE}},
            ["spec", "selector"],
            {"a": "b"},
        ),
        ("autoscaling/v2 HorizontalPodAutoscaler", {}, ["spec", "minReplicas"], 1),
        (
            "autoscaling/v2 HorizontalPodAutoscaler",
            {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}},
            ["spec", "behavior", "scaleDown"],
            {
                "stabilizationWindowSeconds": 5,
                "selectPolicy": "Max",
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            },
        ),
        (
            "v1 Service",
            {"spec": {"ports": [{"port": 80}]}},
            ["spec"],
            {
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
            },
        ),
        (
            "v1 Service",
            {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}},
            ["spec"],
            {
                "type": "LoadBalancer",
                "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": True,
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            },
        ),
        (
            "v1 Service",
            {"spec": {"type": "ExternalName", "externalName": "a.example.com"}},
            ["spec"],
            {"type": "ExternalName", "externalName": "a.example.com", "sessionAffinity": "None"},
        ),
        (
            "discovery.k8s.io/v1 EndpointSlice",
            {"ports": [{"port": 80}]},
            ["ports"],
            [{"port": 80, "name": "", "protocol": "TCP"}],
        ),
        ("networking.k8s.io/v1 NetworkPolicy", {}, ["spec", "policyTypes"], ["Ingress"]),
        (
            "networking.k8s.io/v1 NetworkPolicy",
            {"spec": {"egress": [{}]}},
            ["spec", "policyTypes"],
            ["Ingress", "Egress"],
        ),
        (
            "rbac.authorization.k8s.io/v1 RoleBinding",
            {"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]},
            ["subjects"],
            [
                {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "s"},
            ],
        ),
        (
            "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
            {"roleRef": {"kind": "ClusterRole", "name": "r"}},
            ["roleRef", "apiGroup"],
            "rbac.authorization.k8s.io",
        ),
        (
            "v1 Namespace",
            {"metadata": {"name": "a"}},
            ["metadata", "labels"],
            {"kubernetes.io/metadata.name": "a"},
        ),
        ("v1 Secret", {}, ["type"], "Opaque"),
        ("v1 Secret", {"data": {"a": "YQ=="}, "stringData": {"a": "b"}}, ["data"], {"a": "Yg=="}),
        (
            "v1 LimitRange",
            {
                "spec": {
                    "limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]
                }
            },
            ["spec", "limits"],
            [
                {
                    "type": "Container",
                    "max": {"cpu": "2"},
                    "min": {"memory": "1Mi"},
                    "default": {"cpu": "2"},
                    "defaultRequest": {"cpu": "2", "memory": "1Mi"},
                }
            ],
        ),
        ("v1 PersistentVolume", {}, ["spec", "persistentVolumeReclaimPolicy"], "Retain"),
        ("v1 PersistentVolumeClaim", {}, ["status", "phase"], "Pending"),
        ("storage.k8s.io/v1 StorageClass", {}, ["reclaimPolicy"], "Delete"),
        ("storage.k8s.io/v1 CSIDriver", {}, ["spec", "volumeLifecycleModes"], ["Persistent"]),
        ("scheduling.k8s.io/v1 PriorityClass", {}, ["preemptionPolicy"], "PreemptLowerPriority"),
        (
            "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
            {"webhooks": [{"name": "a", "rules": [{}]}]},
            ["webhooks"],
            [
                {
                    "name": "a",
                    "clientConfig": {},
                    "rules": [{"scope": "*"}],
                    "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "sideEffects": None,
                    "timeoutSeconds": 10,
                    "admissionReviewVersions": None,
                }
            ],
        ),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            {"spec": {"names": {"kind": "Widget", "plural": "widgets"}}},
            ["spec", "names"],
            {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1 FlowSchema",
            {},
            ["spec", "matchingPrecedence"],
            1000,
        ),
    ],
)
def test_what_was_left_out_is_filled_in(kind, given, path, filled) -> None:
    assert find_at(defaulted(kind, **given), *path) == filled


def test_what_was_said_is_kept_even_when_it_is_zero() -> None:
    deployment = defaulted(
        "apps/v1 Deployment", spec={"replicas": 0, "revisionHistoryLimit": 0, "minReadySeconds": 0}
    )

    assert deployment["spec"]["replicas"] == 0
    assert deployment["spec"]["revisionHistoryLimit"] == 0


def test_every_rule_is_for_a_struct_there_is() -> None:
    tables = (apply.ALIASES, apply.GATED, governance.RULES, pods.RULES, workloads.RULES)
    known = {name for each in tables for name in each}

    assert all(wire_types.struct_type(name) for name in known)
    assert len(known) > 60


def test_an_object_that_has_everything_is_returned_as_it_is() -> None:
    kind = GroupVersionKind("", "v1", "ConfigMap")
    config_map = {"metadata": {"name": "a"}}

    assert apply.apply_defaults(kind, config_map) is config_map
