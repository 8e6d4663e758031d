"""What templates need beside them."""

from clusterspace.apis.interpreter.templates import Dependency, dependencies_in
from clusterspace.kube.objects import Object, with_value
from clusterspace.testing.builders import config_map, deployment, pod

POD_SPEC: Object = {
    "serviceAccountName": "robot",
    "imagePullSecrets": [{"name": "registry"}],
    "containers": [
        {
            "name": "main",
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "more", "key": "a"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
                {"name": "C", "value": "plain"},
            ],
        }
    ],
    "initContainers": [{"name": "first", "envFrom": [{"configMapRef": {"name": "early"}}]}],
    "volumes": [
        {"name": "a", "configMap": {"name": "files"}},
        {"name": "b", "secret": {"secretName": "tls"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "d", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
        {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
        {"name": "f", "azureFile": {"secretName": "azure", "shareName": "s"}},
        {"name": "g", "emptyDir": {}},
    ],
}
NEEDED = {
    "ConfigMap": ["early", "files", "more", "settings"],
    "PersistentVolumeClaim": ["disk"],
    "Secret": ["azure", "csi", "keys", "projected", "registry", "tls"],
    "ServiceAccount": ["robot"],
}
EXPECTED = tuple(Dependency(kind, "shop", name) for kind, names in NEEDED.items() for name in names)


def needing(template: Object, *path: str) -> Object:
    return with_value(template, POD_SPEC, *path)


def test_everything_a_pod_names_is_needed_once_and_in_order() -> None:
    web = needing(deployment("web", namespace="shop"), "spec", "template", "spec")
    lone = needing(pod("web", namespace="shop"), "spec")
    nightly = {
        **needing(web, "spec", "jobTemplate", "spec", "template", "spec"),
        "apiVersion": "batch/v1",
        "kind": "CronJob",
    }

    for template in (web, lone, nightly):
        assert dependencies_in(template) == EXPECTED


def test_the_account_every_namespace_has_is_not_needed() -> None:
    assert dependencies_in(with_value(pod("web"), "default", "spec", "serviceAccountName")) == ()


def test_claims_that_a_stateful_set_makes_itself_are_not_needed() -> None:
    web = needing(deployment("web", namespace="shop"), "spec", "template", "spec")
    claims = [{"metadata": {"name": "disk"}}]
    stateful = with_value({**web, "kind": "StatefulSet"}, claims, "spec", "volumeClaimTemplates")

    found = {each.kind for each in dependencies_in(stateful)}

    assert found == {"ConfigMap", "Secret", "ServiceAccount"}


def test_an_ingress_needs_its_certificates() -> None:
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"tls": [{"secretName": "web-tls"}, {"hosts": ["a.example"]}]},
    }

    assert dependencies_in(ingress) == (Dependency("Secret", "shop", "web-tls"),)


def test_what_runs_nothing_needs_nothing() -> None:
    assert dependencies_in(config_map("web")) == ()


def test_a_reference_is_written_in_karmadas_order() -> None:
    written = Dependency("Secret", "shop", "tls").written()

    assert list(written) == ["apiVersion", "kind", "namespace", "name"]
