"""What is wrong with an object, and the words for it."""

import pytest

from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import normalize
from clusterspace.builtins.strategies import (
    Creation,
    prepare_for_create,
    prepare_for_update,
)
from clusterspace.builtins.validation.validate import validate_create, validate_update
from clusterspace.kube.resources import GroupVersionKind

CREATION = Creation(uid="u-1", now="2026-01-01T00:00:00Z")
CONTAINERS = [{"name": "a", "image": "b"}]
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def known(kind: str) -> GroupVersionKind:
    api_version, name = kind.split()
    return GroupVersionKind.of(api_version, name)


def ready(kind: str, **fields):
    named = {"metadata": {"name": "x"}, **fields}
    return apply_defaults(known(kind), normalize(named, known(kind)).object)


def problems(kind: str, **fields) -> list[str]:
    new = prepare_for_create(known(kind), ready(kind, **fields), CREATION)
    return [f"{each.field}: {each.message}" for each in validate_create(known(kind), new)]


def pod(**spec) -> list[str]:
    return problems("v1 Pod", spec={"containers": CONTAINERS, **spec})


def container(**fields) -> list[str]:
    return pod(containers=[{"name": "a", "image": "b", **fields}])


def change(kind: str, old, new) -> list[str]:
    stored = prepare_for_create(known(kind), ready(kind, **old), CREATION)
    wanted = prepare_for_update(known(kind), ready(kind, **{**old, **new}), stored)
    return [
        f"{each.field}: {each.message}" for each in validate_update(known(kind), wanted, stored)
    ]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, ["metadata.name: Required value: name or generateName is required"]),
        ({"name": "A_"}, [f'metadata.name: Invalid value: "A_": {SUBDOMAIN}']),
        (
            {"name": "x", "generateName": "A_"},
            [f'metadata.generateName: Invalid value: "A_": {SUBDOMAIN}'],
        ),
        ({"name": "x", "generateName": "good-"}, []),
        (
            {"name": "x", "labels": {"a b": "c"}},
            [f'metadata.labels: Invalid value: "a b": name part {QUALIFIED}'],
        ),
        (
            {"name": "x", "annotations": {"a": "x" * 300_000}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        ({"name": "x", "annotations": {"Mixed.Case/Key": "fine"}}, []),
        (
            {"name": "x", "finalizers": ["mine"]},
            [
                'metadata.finalizers[0]: Invalid value: "mine": '
                "name is neither a standard finalizer name nor is it fully qualified"
            ],
        ),
        (
            {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            ['metadata.ownerReferences.uid: Invalid value: "": must not be empty'],
        ),
        (
            {"name": "x", "generation": -1},
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_metadata_has_rules_of_its_own(metadata, expected) -> None:
    assert problems("v1 ConfigMap", metadata=metadata) == expected


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("v1 Namespace", "a-b", "a.b"),
        ("v1 Service", "a-1", "1-a"),
        ("rbac.authorization.k8s.io/v1 ClusterRole", "system:Some_Role", "a/b"),
        ("v1 ServiceAccount", "a.b", "A"),
        ("networking.k8s.io/v1 IPAddress", "10.0.0.1", "ten"),
    ],
)
def test_each_kind_has_its_form_of_name(kind, good, bad) -> None:
    def about_the_name(name):
        found = problems(kind, metadata={"name": name})
        return [each for each in found if each.startswith("metadata.name")]

    assert about_the_name(good) == []
    assert len(about_the_name(bad)) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"image": ""}, ["spec.containers[0].image: Required value"]),
        (
            {"image": " b"},
            [
                'spec.containers[0].image: Invalid value: " b": '
                "must not have leading or trailing whitespace"
            ],
        ),
        (
            {"imagePullPolicy": "X"},
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "X": '
                'supported values: "Always", "IfNotPresent", "Never"'
            ],
        ),
        (
            {"ports": [{"containerPort": 70000}]},
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: "
                "must be between 1 and 65535, inclusive"
            ],
        ),
        (
            {"env": [{"name": "a=b"}]},
            [
                'spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment '
                "variable name must consist only of printable ASCII characters other than '='"
            ],
        ),
        (
            {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
            [
                'spec.containers[0].resources.requests: Invalid value: "2": '
                "must be less than or equal to cpu limit of 1"
            ],
        ),
        (
            {"resources": {"requests": {"example.com/gpu": "1"}}},
            [
                "spec.containers[0].resources.limits: Required value: "
                "Limit must be set for non overcommitable resources"
            ],
        ),
        (
            {"resources": {"limits": dict.fromkeys(("cpu", "hugepages-x"), "1")}},
            [
                f'spec.containers[0].resources.{part}[hugepages-x]: Invalid value: "1": '
                "1 is not positive integer multiple of hugepages-x"
                for part in ("limits", "requests")
            ],
        ),
        (
            {"livenessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}},
            [
                "spec.containers[0].livenessProbe.tcpSocket: Forbidden: "
                "may not specify more than 1 handler type"
            ],
        ),
        (
            {"livenessProbe": {}},
            ["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            [
                "spec.containers[0].securityContext.runAsUser: Invalid value: -1: "
                "must be between 0 and 2147483647, inclusive"
            ],
        ),
    ],
)
def test_a_container_that_cannot_run_is_refused(fields, expected) -> None:
    assert container(**fields) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"containers": []}, ["spec.containers: Required value"]),
        (
            {"containers": [*CONTAINERS, *CONTAINERS]},
            ['spec.containers[1].name: Duplicate value: "a"'],
        ),
        (
            {"restartPolicy": "Sometimes"},
            [
                'spec.restartPolicy: Unsupported value: "Sometimes": '
                'supported values: "Always", "OnFailure", "Never"'
            ],
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"volumes": [{"name": "v", "secret": {"defaultMode": 1000}}]},
            [
                "spec.volumes[0].secret.secretName: Required value",
                "spec.volumes[0].secret.defaultMode: Invalid value: 1000: "
                "must be a number between 0 and 0777 (octal), both inclusive",
            ],
        ),
        (
            {
                "initContainers": [
                    {"name": "i", "image": "b", "livenessProbe": {"grpc": {"port": 1}}}
                ]
            },
            [
                "spec.initContainers[0].livenessProbe: Forbidden: "
                "may not be set for init containers without restartPolicy=Always"
            ],
        ),
        (
            {"tolerations": [{"value": "v"}]},
            [
                'spec.tolerations[0].operator: Invalid value: "": operator must be Exists when '
                '`key` is empty, which means "match all values and all keys"'
            ],
        ),
        (
            {"ephemeralContainers": [{"name": "e", "image": "b"}]},
            ["spec.ephemeralContainers: Forbidden: cannot be set on create"],
        ),
    ],
)
def test_a_pod_that_cannot_run_is_refused(spec, expected) -> None:
    assert pod(**spec) == expected


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("apps/v1 Deployment", {"spec": WORKLOAD}, []),
        (
            "apps/v1 Deployment",
            {"spec": {**WORKLOAD, "replicas": -1}},
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "apps/v1 Deployment",
            {"spec": {**WORKLOAD, "selector": {"matchLabels": {"c": "d"}}}},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: '
                "`selector` does not match template `labels`"
            ],
        ),
        (
            "apps/v1 StatefulSet",
            {"spec": {**WORKLOAD, "selector": {}}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for statefulset"],
        ),
        (
            "apps/v1 DaemonSet",
            {
                "spec": {
                    **WORKLOAD,
                    "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
                }
            },
            [
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: "
                "may not be set when maxUnavailable is non-zero"
            ],
        ),
        (
            "batch/v1 Job",
            {"spec": {"template": TEMPLATE}},
            [
                "spec.template.spec.restartPolicy: Required value: "
                'valid values: "OnFailure", "Never"'
            ],
        ),
        (
            "v1 Service",
            {"spec": {"ports": [{"port": 80, "nodePort": 30000}], "sessionAffinity": "X"}},
            [
                'spec.sessionAffinity: Unsupported value: "X": '
                'supported values: "ClientIP", "None"',
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            ],
        ),
        ("v1 Service", {}, ["spec.ports: Required value"]),
        (
            "v1 ConfigMap",
            {"data": {"a": "b"}, "binaryData": {"a": "Yg=="}},
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
        ),
        (
            "v1 Secret",
            {"type": "kubernetes.io/tls", "data": {"tls.crt": ""}},
            ["data[tls.key]: Required value"],
        ),
        (
            "v1 PersistentVolumeClaim",
            {"spec": {}},
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        (
            "networking.k8s.io/v1 Ingress",
            {},
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        ),
        (
            "networking.k8s.io/v1 NetworkPolicy",
            {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "x"}}]}]}},
            [
                'spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "x": '
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ],
        ),
        (
            "rbac.authorization.k8s.io/v1 Role",
            {"rules": [{"verbs": ["get"]}]},
            [
                "rules[0].apiGroups: Required value: "
                "resource rules must supply at least one api group",
                "rules[0].resources: Required value: "
                "resource rules must supply at least one resource",
            ],
        ),
        (
            "coordination.k8s.io/v1 Lease",
            {"spec": {"leaseDurationSeconds": 0}},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            "policy/v1 PodDisruptionBudget",
            {"spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}},
            [
                'spec: Invalid value: {"MinAvailable":1,"Selector":{},"MaxUnavailable":1,'
                '"UnhealthyPodEvictionPolicy":null}: '
                "minAvailable and maxUnavailable cannot be both set"
            ],
        ),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            {
                "metadata": {"name": "a.b.example.com"},
                "spec": {
                    "group": "c.example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "a", "kind": "A"},
                    "versions": [
                        {
                            "name": "v1",
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object"}},
                        }
                    ],
                },
            },
            [
                'metadata.name: Invalid value: "a.b.example.com": '
                'must be spec.names.plural+"."+spec.group'
            ],
        ),
    ],
)
def test_an_object_that_breaks_the_rules_of_its_kind_is_refused(kind, fields, expected) -> None:
    assert problems(kind, **fields) == expected


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 0-6 1,15 jan-mar mon-fri", ""),
        ("@daily", ""),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        (
            "x * * * *",
            'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax',
        ),
    ],
)
def test_a_schedule_nobody_could_keep_is_refused(schedule, problem) -> None:
    job = {"spec": {"template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}}}

    found = problems("batch/v1 CronJob", spec={"schedule": schedule, "jobTemplate": job})

    assert found == ([f'spec.schedule: Invalid value: "{schedule}": {problem}'] if problem else [])


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        (
            "apps/v1 Deployment",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "replicas": 3}},
            [],
        ),
        (
            "apps/v1 Deployment",
            {"spec": WORKLOAD},
            {
                "spec": {
                    "selector": {"matchLabels": {"c": "d"}},
                    "template": {**TEMPLATE, "metadata": {"labels": {"c": "d"}}},
                }
            },
            ['spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable'],
        ),
        (
            "v1 ConfigMap",
            {"data": {"a": "b"}, "immutable": True},
            {"data": {"a": "c"}},
            ["data: Forbidden: field is immutable when `immutable` is set"],
        ),
        (
            "v1 ConfigMap",
            {"data": {"a": "b"}, "immutable": True},
            {"metadata": {"name": "x", "labels": {"a": "b"}}},
            [],
        ),
        (
            "v1 Secret",
            {"type": "a"},
            {"type": "b"},
            ['type: Invalid value: "b": field is immutable'],
        ),
        (
            "rbac.authorization.k8s.io/v1 RoleBinding",
            {"roleRef": {"kind": "Role", "name": "a"}},
            {"roleRef": {"kind": "Role", "name": "b"}},
            [
                'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role",'
                '"Name":"b"}: cannot change roleRef'
            ],
        ),
        (
            "scheduling.k8s.io/v1 PriorityClass",
            {"value": 1},
            {"value": 2},
            ["value: Forbidden: may not be changed in an update."],
        ),
        (
            "v1 Pod",
            {"spec": {"containers": CONTAINERS}},
            {
                "spec": {
                    "containers": [{"name": "a", "image": "other", "imagePullPolicy": "Always"}]
                }
            },
            [],
        ),
        (
            "v1 Pod",
            {"spec": {"containers": CONTAINERS}},
            {"spec": {"containers": [*CONTAINERS, {"name": "c", "image": "d"}]}},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
        ),
        (
            "v1 ConfigMap",
            {"metadata": {"name": "x", "uid": "1"}},
            {"metadata": {"name": "y", "uid": "2"}},
            [
                'metadata.name: Invalid value: "y": field is immutable',
                'metadata.uid: Invalid value: "2": field is immutable',
            ],
        ),
    ],
)
def test_what_others_rely_on_may_not_change(kind, old, new, expected) -> None:
    assert change(kind, old, new) == expected


def test_an_object_being_deleted_takes_no_new_finalizers() -> None:
    kind = known("v1 ConfigMap")
    dying = {
        "metadata": {
            "name": "x",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/a"],
        }
    }
    wanted = {"metadata": {**dying["metadata"], "finalizers": ["example.com/a", "example.com/b"]}}

    (cause,) = validate_update(kind, wanted, dying)

    assert cause.field == "metadata.finalizers"
    assert cause.message == (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/b"}'
    )


def test_a_kind_without_rules_of_its_own_still_has_metadata_rules() -> None:
    kind = GroupVersionKind("resource.k8s.io", "v1", "DeviceClass")

    (cause,) = validate_create(kind, {"metadata": {"name": "A_"}, "spec": {}})

    assert cause.field == "metadata.name"
