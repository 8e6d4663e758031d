"""Karmada's API server: a kube-apiserver with its definitions, its extension server, its webhook.

Whoever has Karmada says where its programs are in KARMADA_ASSETS, and where its sources are in
CONFORMANCE_KARMADA_TREE; neither is part of this project.
"""

import base64
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from tests.component.serving.certificates import Authority as Signer

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import ClusterspaceError
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.init import place_of
from clusterspace.roots.installation import write_pair
from clusterspace.testing.builders import namespace
from clusterspace.testing.hubs import (
    RealServer,
    client_for_test,
    free_port,
    karmada_component_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.steps import until

NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SERVICES = GroupVersionResource("", "v1", "services")
ADMISSION = "admissionregistration.k8s.io"
API_SERVICES = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices")
SERVER = "karmada-aggregated-apiserver"
WEBHOOK_ADDRESS = "https://karmada-webhook.karmada-system.svc:443"
"""Where Karmada's own files say that its webhook is."""


def tree_of_karmada() -> Path:
    tree = os.environ.get("CONFORMANCE_KARMADA_TREE")
    if not tree:
        pytest.skip("no sources of Karmada: set CONFORMANCE_KARMADA_TREE to where they are")
    return Path(tree)


def definitions_of_karmada() -> list[Object]:
    files = sorted((tree_of_karmada() / "charts" / "karmada" / "_crds" / "bases").rglob("*.yaml"))
    read = [yaml.safe_load(file.read_text()) for file in files]
    return [each for each in read if each["kind"] == "CustomResourceDefinition"]


@asynccontextmanager
async def karmada_kinds(real: RealServer, directory: Path) -> AsyncGenerator[None]:
    """Install what Karmada installs, and serve Clusters from its extension server."""
    port = free_port()
    flags = (
        "--authentication-kubeconfig={kubeconfig}",
        "--authorization-kubeconfig={kubeconfig}",
        f"--etcd-servers={real.etcd_url}",
        f"--cert-dir={directory / 'karmada-certificates'}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
    )
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVER, "namespace": "karmada-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    api_service: Object = {
        "apiVersion": API_SERVICES.api_version,
        "kind": "APIService",
        "metadata": {"name": "v1alpha1.cluster.karmada.io"},
        "spec": {
            "group": "cluster.karmada.io",
            "version": "v1alpha1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"name": SERVER, "namespace": "karmada-system", "port": port},
        },
    }
    async with (
        client_for_test(real.settings) as client,
        karmada_component_for_test(SERVER, real, directory, *flags),
    ):
        for each in definitions_of_karmada():
            await client.create(place_of(each).collection, each)
        await client.create(ResourcePath(NAMESPACES), namespace("karmada-system"))
        await client.create(ResourcePath(SERVICES, "karmada-system"), service)
        await client.create(ResourcePath(API_SERVICES), api_service)

        async def are_served() -> bool:
            try:
                return await client.list_objects(manifests.cluster_path("").collection) == []
            except ClusterspaceError:  # the API server has not heard of it yet
                return False

        await until(are_served, seconds=120)
        yield


def front_proxy_flags(directory: Path) -> tuple[str, ...]:
    """Return what has an extension server believe whom the API server names as its users."""
    now = SystemClock().now()
    front = Authority.create("front-proxy", now)
    write_pair(front.pair, directory / "front-ca.crt", directory / "front-ca.key")
    shown = directory / "front.crt", directory / "front.key"
    write_pair(front.issue_client("front-proxy", (), now), *shown)
    return (
        f"--requestheader-client-ca-file={directory / 'front-ca.crt'}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={shown[0]}",
        f"--proxy-client-key-file={shown[1]}",
    )


@asynccontextmanager
async def running_karmada_server(directory: Path) -> AsyncGenerator[Path]:
    """Run Karmada's API server, with its webhook; yield the kubeconfig of its administrator.

    Its controllers and its scheduler are whoever's who asks.
    """
    definitions_of_karmada()  # or skip, before anything starts
    certificates = directory / "webhook-certificates"
    certificates.mkdir()
    Signer(certificates).issue("tls", host="127.0.0.1")
    port = free_port()
    webhook = (
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={certificates}",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        f"--metrics-bind-address=127.0.0.1:{free_port()}",
    )
    file = tree_of_karmada() / "artifacts" / "deploy" / "webhook-configuration.yaml"
    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    configurations: list[Object] = list(
        yaml.safe_load_all(
            file.read_text()
            .replace("{{caBundle}}", authority)
            .replace(WEBHOOK_ADDRESS, f"https://127.0.0.1:{port}")
        )
    )
    real = real_server_for_test(
        directory,
        *front_proxy_flags(directory),
        name="karmada",
        without="StorageObjectInUseProtection,ServiceAccount",
    )
    controllers = "namespace-controller", "garbage-collector-controller"
    async with (
        real as server,
        client_for_test(server.settings) as client,
        real_controllers_for_test(server, directory, *controllers),
        karmada_kinds(server, directory),
        karmada_component_for_test("karmada-webhook", server, directory, *webhook),
    ):
        for each in configurations:
            plural = f"{each['kind'].lower()}s"
            resource = GroupVersionResource(ADMISSION, "v1", plural)
            await client.create(ResourcePath(resource), each)
        yield directory / "controllers.kubeconfig"
