"""Karmada's own end-to-end suite against a fleet: a hub, two Push members and a Pull member.

A fourth simulated member stands in for the host cluster, which the suite looks into now and then.
"""

import base64
import os
import re
import shlex
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from tools.conformance.reasons import WEBHOOK, reason_of
from tools.conformance.suites import (
    ROOT,
    Missing,
    Result,
    Spec,
    Suite,
    named_file,
    read_report,
    running,
    wait_for_file,
)

from clusterspace.apiserver.identity.authority import Authority
from clusterspace.testing.hubs import free_port

VERSION: Final = "v1.18.2"
_CLUSTERSPACE: Final = ROOT / ".venv" / "bin" / "clusterspace"
_PUSHED: Final = ("member1", "member2")
_PULLED: Final = "member3"
_HOST: Final = "karmada-host"
_SECONDS: Final = 7200
_READY_SECONDS: Final = 60
_WORKLOADS: Final = "examples/customresourceinterpreter/apis/workload.example.io_workloads.yaml"


def _access(kubeconfig: Path, context: str = "") -> tuple[Any, Any]:
    """Return the cluster and the user of a context."""
    config = yaml.safe_load(kubeconfig.read_text())
    name = context or config["current-context"]
    chosen = next(each["context"] for each in config["contexts"] if each["name"] == name)
    cluster = next(e["cluster"] for e in config["clusters"] if e["name"] == chosen["cluster"])
    user = next(each["user"] for each in config["users"] if each["name"] == chosen["user"])
    return cluster, user


def _write_kubeconfig(path: Path, contexts: Mapping[str, tuple[Any, Any]]) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(contexts)),
        "clusters": [{"name": name, "cluster": each} for name, (each, _) in contexts.items()],
        "users": [{"name": name, "user": each} for name, (_, each) in contexts.items()],
        "contexts": [{"name": n, "context": {"cluster": n, "user": n}} for n in contexts],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def _fleet(work: Path, tree: Path) -> Generator[None]:
    """Run the fleet, with the kind of workload that the suite's examples bring along."""
    environment = {"KUBECONFIG": str(work / "hub" / "kubeconfig")}
    settings = {
        "CLUSTERSPACE_HUB_ACCEPT_KARMADA_AGENTS": "true",
        "CLUSTERSPACE_CONTROLLERS_ENABLE_NO_EXECUTE_TAINT_EVICTION": "true",
        # Specs write a ResourceQuota on a member, and expect the next placement to know of it.
        "CLUSTERSPACE_CONTROLLERS_CLUSTER_STATUS_UPDATE_FREQUENCY": "1",
    }

    def call(*command: str | Path) -> str:
        arguments = [str(each) for each in command]
        variables = {**os.environ, **environment}
        done = subprocess.run(arguments, env=variables, check=True, capture_output=True, text=True)
        return done.stdout

    members = (*_PUSHED, _PULLED, _HOST)
    with ExitStack() as stack:
        up = (_CLUSTERSPACE, "up", "--data-dir", work / "hub", "--hub-port", "0")
        stack.enter_context(running(work, "up", (*up, "--fleet-port", "0"), **settings))
        for name in members:
            sim = (_CLUSTERSPACE, "sim", name, "--data-dir", work / name, "--port", "0")
            # As large as where Karmada itself runs them: some specs fill a cluster.
            small = ("--nodes", "1", "--node-cpu", "4")
            stack.enter_context(running(work, name, (*sim, *small)))
        everyone = ("hub", *members)
        kubeconfigs = {each: wait_for_file(work / each / "kubeconfig") for each in everyone}
        at_hub = ("--context", "hub")
        for name in _PUSHED:
            call(_CLUSTERSPACE, "join", name, "--cluster-kubeconfig", kubeconfigs[name], *at_hub)
        invite = (_CLUSTERSPACE, "token", "create", _PULLED, "--print-register-command", *at_hub)
        printed = call(*invite)
        _, *words = shlex.split(re.sub(r"\\\n", " ", printed))
        register = (_CLUSTERSPACE, *words, "--cluster-kubeconfig", kubeconfigs[_PULLED], "--local")
        # Karmada's example of a webhook is on this machine.
        reach = {
            "CLUSTERSPACE_REGISTER_ALLOW_WEBHOOK_CIDRS": "127.0.0.0/8",
            # A spec reads what Karmada's agents report, unless they are told not to.
            "CLUSTERSPACE_REGISTER_REPORT_SECRETS": "KubeCredentials",
        }
        stack.enter_context(running(work, "agent", register, **environment, **reach))
        # One address for all that karmada-apiserver is: the hub's own objects, and search.
        server, user = _access(kubeconfigs["hub"], "fleet")
        whole = {**server, "server": f"{server['server']}/clusterspaces/karmada"}
        apis = {"karmada-apiserver": (whole, user)}
        apis[_HOST] = _access(kubeconfigs[_HOST])
        hub = _write_kubeconfig(work / "karmada.config", apis)
        own = {name: _access(kubeconfigs[name]) for name in (*_PUSHED, _PULLED)}
        _write_kubeconfig(work / "members.config", own)
        for kubeconfig in (hub, *(kubeconfigs[name] for name in own)):
            call(
                "kubectl",
                "--kubeconfig",
                kubeconfig,
                "apply",
                "--server-side",
                "-f",
                tree / _WORKLOADS,
            )
        for name in own:
            call("kubectl", "--kubeconfig", kubeconfigs[name], "apply", "-f", _furnish(work, name))
        for _ in range(_READY_SECONDS):
            listed = call("kubectl", "--context", "hub", "get", "clusters", "--no-headers")
            if listed.count("True") >= len(own):
                break
            time.sleep(1)
        webhook = _webhook()
        if webhook is not None:
            stack.enter_context(_interpreting(work, webhook, hub))
        yield


def _furnish(work: Path, name: str) -> Path:
    """Write down what a cluster that kind has made comes with, and specs look for by name."""
    pod = {"containers": [{"name": "main", "image": "furniture"}]}
    labels = {"app": "furniture"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    workload = {"selector": {"matchLabels": labels}, "template": template}
    node = f"{name}-control-plane"
    wanted: list[tuple[str, str, str, Any]] = [
        ("v1", "Node", node, {"unschedulable": True}),
        ("v1", "Pod", f"etcd-{node}", pod),
        ("apps/v1", "Deployment", "coredns", workload),
        ("apps/v1", "DaemonSet", "kube-proxy", workload),
    ]
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": called, "namespace": "kube-system"},
            "spec": spec,
        }
        for version, kind, called, spec in wanted
    ]
    del documents[0]["metadata"]["namespace"]  # nodes have none
    path = work / f"{name}-furniture.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def _webhook() -> Path | None:
    """Return Karmada's example of an interpreter webhook; None when nobody has built it."""
    try:
        return named_file("CONFORMANCE_KARMADA_WEBHOOK")
    except Missing:
        return None


@contextmanager
def _interpreting(work: Path, program: Path, hub: Path) -> Generator[None]:
    """Run the webhook, and tell the hub of it as Karmada's own preparation of the suite does."""
    directory = work / "webhook"
    directory.mkdir(exist_ok=True)
    authority = Authority.create("webhook", time.time())
    issued = authority.issue_server(("127.0.0.1",), time.time())
    (directory / "tls.crt").write_bytes(issued.certificate)
    (directory / "tls.key").write_bytes(issued.key)
    port = free_port()
    rule = {
        "operations": [
            "InterpretReplica", "ReviseReplica", "Retain", "AggregateStatus", "InterpretHealth",
            "InterpretStatus", "InterpretDependency",
        ],
        "apiGroups": ["workload.example.io"],
        "apiVersions": ["v1alpha1"],
        "kinds": ["Workload"],
    }  # fmt: skip
    told = {
        "apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "examples"},
        "webhooks": [
            {
                "name": "workloads.example.com",
                "rules": [rule],
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/interpreter-workload",
                    "caBundle": base64.b64encode(authority.pair.certificate).decode(),
                },
                "interpreterContextVersions": ["v1alpha1"],
                "timeoutSeconds": 3,
            }
        ],
    }
    place = ("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={directory}")
    command = (program, f"--kubeconfig={hub}", *place)
    with running(work, "webhook", command):
        subprocess.run(
            ["kubectl", "--kubeconfig", str(hub), "apply", "-f", "-"],
            input=yaml.safe_dump(told).encode(),
            check=True,
            capture_output=True,
        )
        yield


def directory_for(work: Path) -> Path:
    """Return where logs and reports are."""
    return work / "karmada"


def read_results(work: Path) -> tuple[list[Result], set[Spec]]:
    """Return how specs ended, and which of them failed first and passed when they ran again."""
    results = read_report(directory_for(work))
    passed_again: set[Spec] = set()
    for again in sorted(work.glob("karmada-again-*")):
        # Some have the same name as others: each counts once, in the order in which they ran.
        newer: dict[Spec, list[Result]] = {}
        for result in read_report(again):
            newer.setdefault(result.spec, []).append(result)
        for at, result in enumerate(results):
            if not result.passed and newer.get(result.spec):
                results[at] = newer[result.spec].pop(0)
                passed_again |= {result.spec} if results[at].passed else set()
        ran = {each.spec for each in results}
        results += [each for spec, listed in newer.items() if spec not in ran for each in listed]
    return results, passed_again


def read_left_out(work: Path) -> list[Spec]:
    """Return the specs that no run has run."""
    ran = {each.spec for each in read_results(work)[0]}
    left_out = read_report(directory_for(work), left_out=True)
    return [each.spec for each in left_out if each.spec not in ran]


def run(work: Path, focus: str, processes: int, *, again: bool = False) -> None:
    """Run Karmada's specs, or those again that failed; the reports are in their directories."""
    if again:
        _run_again(work, focus, processes)
        return
    _run_in(directory_for(work), None, focus, processes=processes)


def _run_again(work: Path, focus: str, processes: int) -> None:
    """Run what was not run, or did not pass and has no reason, on a fleet of its own.

    A machine that is busy with several specs at a time and with others' work fails some that it
    would not fail alone.
    """
    results, _ = read_results(work)
    failed = [each.spec for each in results if not each.passed and reason_of(each) is None]
    chosen = [each for each in (*failed, *read_left_out(work)) if re.search(focus, each.name)]
    if chosen:
        number = len(list(work.glob("karmada-again-*"))) + 1
        _run_in(work / f"karmada-again-{number}", chosen, processes=processes)


def _run_in(work: Path, chosen: Sequence[Spec] | None, focus: str = "", *, processes: int) -> None:
    """Run specs on a fleet in a directory: these, those whose name has an expression, or all."""
    binary, tree = named_file("CONFORMANCE_KARMADA"), named_file("CONFORMANCE_KARMADA_TREE")
    karmadactl = named_file("CONFORMANCE_KARMADACTL")
    tools = work / "gopath" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "karmadactl": f'#!/bin/sh\nexec {karmadactl} "$@"\n',
        # The suite asks `go env GOPATH` for where karmadactl is.
        "go": '#!/bin/sh\necho "$GOPATH"\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {
        "KUBECONFIG": str(work / "karmada.config"),
        "PULL_BASED_CLUSTERS": f"{_PULLED}:{work / 'members.config'}",
        "GOPATH": str(work / "gopath"),
        "PATH": f"{tools}:{os.environ['PATH']}",
    }
    flags = ("-poll-interval=1s", "-poll-timeout=240s")
    suite = Suite(binary, flags, tree / "test/e2e/suites/base", environment)
    with _fleet(work, tree):
        if chosen is None and focus:
            suite.list_specs(work / "specs")
            listed = (result.spec for result in read_report(work / "specs"))
            chosen = [each for each in listed if re.search(focus, each.name)]
        if chosen is None:
            skip = "" if _webhook() else WEBHOOK.name
            suite.run_all(work, skip, processes=processes, seconds=_SECONDS)
        else:
            suite.run(work, chosen, processes=processes, seconds=_SECONDS)
