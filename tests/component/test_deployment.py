"""What is in deploy/ works with the commands there are, and a Kubernetes API accepts it."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import pytest_asyncio
import yaml
from tests.component.deployed_parts import (
    DEPLOY,
    Deployment,
    read_unit,
    running,
    started_by_kubernetes,
    started_by_systemd,
    wait_for,
)

from clusterspace import __version__
from clusterspace.apis.identities import COMPONENTS
from clusterspace.apiserver.kubernetes_hub.manifests import ACCOUNTS
from clusterspace.cli.main import main
from clusterspace.cli.settings import CommandPath
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.fleet.membership import manifests
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.quick_commands import quick_commands

UNITS = sorted(DEPLOY.glob("systemd/*.service"))
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
PROGRAM = "/opt/clusterspace/bin/clusterspace"
STRICT_DRY_RUN = WriteOptions(is_dry_run=True, field_validation="Strict")


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def pods_of(file: Path) -> Iterator[dict[str, Any]]:
    for document in documents(file):
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["spec"]["template"]["spec"]


def containers() -> Iterator[dict[str, Any]]:
    for file in MANIFESTS:
        for pod in pods_of(file):
            yield from (*pod.get("initContainers", ()), *pod["containers"])


def parse(words: list[str]) -> click.Context:
    """Parse a command line of ours; UsageError when it has what no command takes."""
    root = click.Context(main, info_name="clusterspace")
    name, command, rest = main.resolve_command(root, words)
    assert command is not None
    return command.make_context(name, rest, parent=root)


@pytest_asyncio.fixture
async def hub(tmp_path: Path) -> AsyncIterator[ClusterClient]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        yield hub_client


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_runs_a_command_that_exists(file: Path) -> None:
    program, *words = read_unit(file)["Service"]["ExecStart"].split()

    assert program == PROGRAM
    assert parse(words).info_name == file.stem.removeprefix("clusterspace-")


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_runs_as_nobody_special(file: Path) -> None:
    service = read_unit(file)["Service"]

    # One user each: the files of one part are not the others' to read.
    part = file.stem.removeprefix("clusterspace-")
    assert service["User"] == ("clusterspace" if part == "hub" else f"clusterspace-{part}")
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_systemd_accepts_a_unit(file: Path, tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not on the PATH")
    for each in UNITS:  # they name one another
        (tmp_path / each.name).write_text(each.read_text().replace(PROGRAM, "/bin/true"))

    told = subprocess.run(
        [verify, "verify", str(tmp_path / file.name)], capture_output=True, text=True, check=False
    )

    assert (told.returncode, told.stderr) == (0, "")


def test_containers_run_commands_that_exist() -> None:
    names = {
        parse([*container.get("command", [])[1:], *container.get("args", [])]).info_name
        for container in containers()
        if container["name"] != "authority"  # copies two files
    }

    assert names == {"hub", "fleet", "controllers", "agent", "webhook"}


def test_containers_have_no_rights_on_their_machine() -> None:
    for container in containers():
        held = container["securityContext"]
        assert held["allowPrivilegeEscalation"] is False
        assert held["readOnlyRootFilesystem"] is True
        assert held["capabilities"] == {"drop": ["ALL"]}


def test_the_variables_of_our_own_service_are_not_taken_for_settings() -> None:
    """A Service called clusterspace-hub would set CLUSTERSPACE_HUB_PORT to tcp://..."""
    (pod,) = pods_of(DEPLOY / "kubernetes" / "clusterspace.yaml")

    assert pod["enableServiceLinks"] is False


def test_parts_beside_a_kube_apiserver_have_the_accounts_that_init_makes() -> None:
    pods = pods_of(DEPLOY / "kubernetes" / "kubernetes-hub.yaml")

    assert {pod["serviceAccountName"] for pod in pods} == set(ACCOUNTS.values())


def test_every_image_is_of_this_version() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    named = {each for file in files for each in re.findall(r"clusterspace:\d\S*", file.read_text())}

    assert named == {f"clusterspace:{__version__}"}
    assert {container["image"] for container in containers()} == named


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
async def test_an_api_server_accepts_the_manifests(file: Path, hub: ClusterClient) -> None:
    served = (await Discovery(hub.connection).served()).resources
    resource_of = {(each.group_version.api_version, each.kind): each for each in served}
    await hub.create(ResourcePath(NAMESPACES), namespace(documents(file)[0]["metadata"]["name"]))

    for document in documents(file):
        resource = resource_of[document["apiVersion"], document["kind"]]
        metadata = document["metadata"]
        place = ResourcePath(
            resource.group_version_resource, metadata.get("namespace", ""), metadata["name"]
        )
        applied = await hub.apply(place, document, STRICT_DRY_RUN)
        assert applied["metadata"]["name"] == metadata["name"]


def test_the_agent_is_the_one_that_registering_makes() -> None:
    made = (
        manifests.agent_namespace(""),
        manifests.agent_account(""),
        manifests.agent_role(""),
        manifests.agent_role_binding(""),
        manifests.agent_deployment(f"clusterspace:{__version__}", ""),
    )
    unmarked = [
        {
            **each,
            "metadata": {
                key: value
                for key, value in each["metadata"].items()
                if key not in ("labels", "annotations")
            },
        }
        for each in made
    ]

    assert documents(DEPLOY / "kubernetes" / "agent.yaml") == unmarked


def test_the_container_image_is_made_of_what_is_here() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)

    assert all((DEPLOY.parent / each).exists() for line in copied for each in line.split())
    assert 'ENTRYPOINT ["clusterspace"]' in text
    (user,) = re.findall(r"^USER (\d+)", text, re.MULTILINE)
    assert int(user) == 65532


# -- several of everything -------------------------------------------------------------------------


def stateful_set() -> dict[str, Any]:
    found = documents(DEPLOY / "kubernetes" / "ha.yaml")
    return next(each for each in found if each["kind"] == "StatefulSet")


def test_replicas_are_on_machines_of_their_own_and_go_one_at_a_time() -> None:
    spec = stateful_set()["spec"]
    labels = spec["selector"]["matchLabels"]
    budget = next(
        each["spec"]
        for each in documents(DEPLOY / "kubernetes" / "ha.yaml")
        if each["kind"] == "PodDisruptionBudget"
    )
    (apart,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]

    assert spec["replicas"] == 3
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"] == labels
    assert spec["updateStrategy"]["type"] == "RollingUpdate"


def test_a_pod_has_the_time_that_its_servers_take_to_go() -> None:
    pod = stateful_set()["spec"]["template"]["spec"]
    servers = [each for each in (*pod["initContainers"], *pod["containers"]) if each.get("ports")]
    delays = [
        float(word.partition("=")[2])
        for each in servers
        for word in each["args"]
        if word.startswith("--shutdown-delay-duration")
    ]

    assert len(delays) == 2
    for each in servers:
        probe = each["readinessProbe"]
        assert (probe["httpGet"]["path"], each["livenessProbe"]["httpGet"]["path"]) == (
            "/readyz",
            "/livez",
        )
        # Whoever passes connections on has seen it before the server stops taking any.
        assert probe["periodSeconds"] * probe["failureThreshold"] < min(delays)
    # One after the other: a hub goes when what uses it has gone. Draining takes ten seconds each.
    assert pod["terminationGracePeriodSeconds"] >= sum(delays) + 2 * 10


def test_the_settings_of_several_machines_are_settings() -> None:
    text = (DEPLOY / "systemd" / "ha.environment").read_text()
    named = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
    known = {
        each.variable for command in CommandPath((), main).below() for each in command.settings()
    }

    assert named
    assert named <= known
    delay = re.findall(r"SHUTDOWN_DELAY_DURATION=(\d+)", text)
    for part in ("hub", "fleet"):
        service = read_unit(DEPLOY / "systemd" / f"clusterspace-{part}.service")["Service"]
        assert all(int(each) + 10 < int(service["TimeoutStopSec"]) for each in delay)


# -- the control plane that deploy/ starts ---------------------------------------------------------


STARTED = {"systemd": started_by_systemd, "kubernetes": started_by_kubernetes}
SHOP = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
                },
            },
        },
        {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "PropagationPolicy",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
            },
        },
    ],
}

REFUSED = {
    "fleet": (
        ("get", "secrets", "-A"),
        ("get", "secrets", "-n", "kube-system"),
        ("get", "deployments", "-n", "shop"),
        ("delete", "clusters.cluster.karmada.io", "west"),
        ("label", "clusters.cluster.karmada.io", "west", "a=b"),
        ("create", "token", "default"),
        ("create", "clusterrolebinding", "me", "--clusterrole=cluster-admin", "--user=me"),
        ("get", "works.work.karmada.io", "-A", "--as=system:clusterspace-controllers"),
        ("get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy/api/v1/nodes"),
    ),
    "controllers": (
        ("get", "nodes", "--as=kubernetes-admin", "--as-group=system:masters"),
        ("get", "nodes", "--as=jane"),
        ("create", "token", "default"),
        ("delete", "namespace", "shop"),
        ("delete", "deployment", "web", "-n", "shop"),
        ("delete", "clusterrole", "view"),
        ("delete", "crd", "works.work.karmada.io"),
        ("set", "image", "deployment/web", "web=web:2", "-n", "shop"),
        ("scale", "deployment", "web", "-n", "shop", "--replicas=9"),
        ("create", "configmap", "mine", "-n", "shop"),
        ("create", "namespace", "mine"),
        ("create", "clusterrolebinding", "me", "--clusterrole=cluster-admin", "--user=me"),
        ("get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy/api/v1/nodes"),
    ),
}
"""What each part need not be able to do, as kubectl asks for it."""


@pytest.mark.parametrize("how", STARTED)
def test_what_deploy_starts_works_and_no_part_can_do_what_it_need_not(
    how: str, tmp_path: Path
) -> None:
    with STARTED[how](tmp_path) as deployed:
        member = tmp_path / "member"
        with running(tmp_path, "sim", ["sim", "west", "--data-dir", str(member), "--nodes=1"]):
            wait_for((member / "kubeconfig").exists, "the member is ready")
            join = ("join", "west", "--cluster-kubeconfig", str(member / "kubeconfig"))
            ours = [quick_commands() / "clusterspace", *join, "--kubeconfig"]
            subprocess.run(
                [*ours, str(deployed.admin)], check=True, capture_output=True, timeout=60
            )

            manifest = tmp_path / "shop.yaml"
            manifest.write_text(yaml.safe_dump(SHOP))
            applied = deployed.kubectl("apply", "-f", str(manifest))
            assert applied.returncode == 0, applied.stderr
            # The hub's administrator is nobody there until the member says otherwise.
            refused = deployed.kubectl("get", "pods", "-n", "shop.clusterspace.west")
            assert "Forbidden" in refused.stderr
            bind = ("clusterrolebinding", "fleet-admin", "--clusterrole=cluster-admin")
            there = ("--kubeconfig", str(member / "kubeconfig"), "--user=kubernetes-admin")
            subprocess.run(
                ["kubectl", "create", *bind, *there], check=True, capture_output=True, timeout=60
            )
            wait_for(lambda: pods_of_shop(deployed) == 2, "two pods in the unified view")

            # Nothing the parts wrote on the way was refused: they have what they need.
            users = {each["user"] for each in deployed.writes()}
            assert users == {"kubernetes-admin", *COMPONENTS.values()}
            assert [
                each
                for each in deployed.writes()
                if each["user"] in COMPONENTS.values() and each.get("code") in (401, 403)
            ] == []

            for part, words_of_part in REFUSED.items():
                # The roles are the same whoever starts the parts: all of it is tried once.
                attempts = words_of_part if how == "systemd" else words_of_part[:3]
                own = str(deployed.identities[part])
                told = {words: deployed.kubectl(*words, kubeconfig=own) for words in attempts}
                allowed = {
                    words: answer.stdout
                    for words, answer in told.items()
                    if answer.returncode == 0 or "orbidden" not in answer.stderr
                }
                assert allowed == {}, part


def pods_of_shop(deployed: Deployment) -> int:
    listed = deployed.kubectl("get", "pods", "-n", "shop", "--no-headers")
    return len([line for line in listed.stdout.splitlines() if "Running" in line])


def test_no_part_is_given_what_is_the_administrators() -> None:
    """The words that would hand it over are in no unit and in no container of theirs."""
    (pod,) = pods_of(DEPLOY / "kubernetes" / "clusterspace.yaml")
    for container in pod["containers"]:
        part = container["name"]
        folders = {each["subPath"] for each in container["volumeMounts"] if each["name"] == "data"}
        assert folders <= {part, f"hub/parts/{part}"}
    for part in COMPONENTS:
        service = read_unit(DEPLOY / "systemd" / f"clusterspace-{part}.service")["Service"]
        assert "clusterspace/hub" not in service["ExecStart"]
        assert service["LoadCredential"].endswith(f"/hub/parts/{part}/kubeconfig")
