"""Kubernetes' conformance specs that need no kubelet, against a hub and against a simulated member.

Pods of these specs are never started: a hub runs none. So a spec counts as node-free when it passes
on a kube-apiserver with a kube-controller-manager and no node that runs anything. The others are
listed on the page as not run.
"""

import json
import os
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tools.conformance.suites import (
    ROOT,
    Missing,
    Spec,
    Suite,
    named_file,
    read_report,
    running,
    wait_for_file,
)

VERSION: Final = "v1.35"
_CLUSTERSPACE: Final = ROOT / ".venv" / "bin" / "clusterspace"
_ASSETS: Final = "/usr/local/kubebuilder/bin"
_SECONDS: Final = 5400

ALL: Final = ""
NODE_FREE: Final[Mapping[str, str]] = {
    "apimachinery/aggregated_discovery.go": ALL,
    "apimachinery/chunking.go": ALL,
    "apimachinery/crd_publish_openapi.go": ALL,
    "apimachinery/crd_watch.go": ALL,
    "apimachinery/custom_resource_definition.go": ALL,
    "apimachinery/discovery.go": ALL,
    "apimachinery/field_validation.go": ALL,
    "apimachinery/flowcontrol.go": ALL,
    "apimachinery/garbage_collector.go": ALL,
    "apimachinery/namespace.go": "(to|patch) a Namespace|namespace status|services are removed",
    "apimachinery/resource_quota.go": ALL,
    "apimachinery/server_version.go": ALL,
    "apimachinery/table_conversion.go": ALL,
    "apimachinery/validatingadmissionpolicy.go": ALL,
    "apimachinery/watch.go": ALL,
    "apps/cronjob.go": ALL,
    "apps/disruption.go": "Listing|should create a",
    "apps/rc.go": "exceeded quota|scale",
    "architecture/conformance.go": ALL,
    "auth/certificates.go": ALL,
    "auth/service_accounts.go": "opting out|TokenReview|any namespace|lifecycle of|should update",
    "auth/subjectreviews.go": ALL,
    "common/node/configmap.go": "empty key|lifecycle",
    "common/node/lease.go": ALL,
    "common/node/podtemplates.go": ALL,
    "common/node/runtimeclass.go": "reject a Pod|API operations",
    "common/node/secrets.go": "empty secret|patch a",
    "common/node/sysctl.go": "reject invalid",
    "dra/dra.go": ALL,
    "instrumentation/core_events.go": ALL,
    "instrumentation/events.go": ALL,
    "kubectl/kubectl.go": "api-versions|cluster-info|diff|version|Proxy server|dry-run|run pod",
    "network/apiserver.go": ALL,
    "network/endpoints.go": "lifecycle|matches no pods",
    "network/endpointslice.go": "matches no pods|API operations",
    "network/endpointslicemirroring.go": ALL,
    "network/ingress.go": ALL,
    "network/ingressclass.go": ALL,
    "network/service.go": "status lifecycle|collection of services|listing all",
    "network/service_cidrs.go": ALL,
    "node/node_lifecycle.go": ALL,
    "node/pods.go": "QOS Class",
    "scheduling/limit_range.go": ALL,
    "scheduling/preemption.go": "PriorityClass endpoints",
    "storage/csi_inline.go": ALL,
    "storage/csi_node.go": ALL,
    "storage/csistoragecapacity.go": ALL,
    "storage/persistent_volumes.go": ALL,
    "storage/storageclass.go": ALL,
    "storage/volume_attachment.go": ALL,
    "storage/volumeattributesclass.go": ALL,
}
"""File of a spec to the part of its name that says it needs no node."""


def is_conformance(spec: Spec) -> bool:
    """Whether a spec is one every conformant cluster passes."""
    return "[Conformance]" in spec.name


def is_node_free(spec: Spec) -> bool:
    """Whether a spec can pass where no kubelet runs."""
    wanted = NODE_FREE.get(spec.file)
    return wanted is not None and re.search(wanted, spec.name) is not None


@contextmanager
def hub(work: Path) -> Generator[Path]:
    """Run a hub, a kube-controller-manager and two made-up nodes; yield the kubeconfig."""
    data, pki = work / "hub", work / "hub" / "pki"
    manager = Path(os.environ.get("KUBEBUILDER_ASSETS") or _ASSETS) / "kube-controller-manager"
    if not manager.exists():
        raise Missing("no kube-controller-manager in `KUBEBUILDER_ASSETS`")
    with ExitStack() as stack:
        serve = (_CLUSTERSPACE, "hub", "--data-dir", data, "--port", "0")
        stack.enter_context(running(work, "hub", serve))
        kubeconfig = wait_for_file(data / "kubeconfig")
        controllers = (
            manager,
            f"--kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            "--secure-port=0",
            "--node-monitor-grace-period=24h",  # nobody renews the leases of made-up nodes
        )
        stack.enter_context(running(work, "kube-controller-manager", controllers))
        for name in ("node-a", "node-b"):
            _make_node(kubeconfig, name)
        yield kubeconfig


def _make_node(kubeconfig: Path, name: str) -> None:
    def kubectl(*arguments: str, given: str | None = None) -> None:
        command = ("kubectl", f"--kubeconfig={kubeconfig}", *arguments)
        subprocess.run(command, input=given, text=True, check=True, capture_output=True)

    room = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    ready = {"type": "Ready", "status": "True", "reason": "MadeUp", "message": "runs nothing"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    kubectl("create", "-f", "-", given=json.dumps(node))
    body = json.dumps({"status": status})
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", body)
    kubectl("patch", "node", name, "--type=merge", "-p", '{"spec":{"taints":null}}')


@contextmanager
def simulated_member(work: Path) -> Generator[Path]:
    """Run a simulated member with two nodes; yield the kubeconfig."""
    data = work / "member"
    serve = (_CLUSTERSPACE, "sim", "member", "--data-dir", data, "--port", "0", "--nodes", "2")
    with running(work, "member", serve):
        yield wait_for_file(data / "kubeconfig")


def suite_for(kubeconfig: Path, work: Path) -> Suite:
    """Return Kubernetes' suite, pointed at a cluster."""
    flags = (
        "--provider=skeleton",
        f"--kubeconfig={kubeconfig}",
        "--allowed-not-ready-nodes=-1",
        "--minStartupPods=0",
        "--num-nodes=2",
        "--dump-logs-on-failure=false",
        "--disable-log-dump=true",
    )
    binary = named_file("CONFORMANCE_KUBERNETES")
    return Suite(binary, flags, work, {"KUBECONFIG": str(kubeconfig)})


def directory_for(target: str, work: Path) -> Path:
    """Return where the logs and reports of a target are."""
    return work / f"kubernetes-{target}"


def run(target: str, work: Path, focus: str, processes: int) -> None:
    """Run the node-free specs on a target; the reports are in its directory."""
    named_file("CONFORMANCE_KUBERNETES")
    served = {"hub": hub, "member": simulated_member}[target]
    directory = directory_for(target, work)
    directory.mkdir(parents=True, exist_ok=True)
    with served(directory) as kubeconfig:
        suite = suite_for(kubeconfig, directory)
        suite.list_specs(directory / "specs")
        chosen = [each for each in conformance_specs(target, work) if is_node_free(each)]
        chosen = [each for each in chosen if re.search(focus, each.name)]
        suite.run(directory, chosen, processes=processes, seconds=_SECONDS)


def conformance_specs(target: str, work: Path) -> list[Spec]:
    """Return every conformance spec of the suite that was run on a target."""
    listed = read_report(directory_for(target, work) / "specs")
    return [result.spec for result in listed if is_conformance(result.spec)]
