"""Stock karmadactl, every subcommand, on a hub with a Push and a Pull member.

The page says of each what it does here; what it does is seen here, where KARMADA_ASSETS has it.
`register` and `unregister` have a file of their own, test_karmada_agent_joins.py.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
import yaml
from tests.conformance.test_karmada_programs import find_karmada

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import find_at, name_of
from clusterspace.testing.builders import CONFIG_MAPS, PODS, config_map, deployment
from clusterspace.testing.stage import (
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PAGE: Final = Path(__file__).parents[2] / "docs" / "karmada-compatibility.md"
MEMBERS: Final = ("west", "south")
CUSTOMIZATION: Final = {
    "apiVersion": "config.karmada.io/v1alpha1",
    "kind": "ResourceInterpreterCustomization",
    "metadata": {"name": "halves"},
    "spec": {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
        "customizations": {
            "replicaResource": {
                "luaScript": "function GetReplicas(obj)\n  return 7, nil\nend\n",
            }
        },
    },
}


@dataclass
class Desk:
    """A user with karmadactl, files to apply, and the kubeconfigs of hub and members."""

    fleet: Fleet
    members: dict[str, Side]
    directory: Path

    async def run(self, *words: str, seconds: float = 60) -> tuple[int | None, str]:
        """Run a command; return how it ended, None when it had to be ended, and what it said."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.directory / "hub" / "kubeconfig"),
            "EDITOR": "true",
        }
        process = await asyncio.create_subprocess_exec(
            find_karmada("karmadactl"),
            *words,
            cwd=self.directory,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(seconds):
                while piece := await process.stdout.read(65536):
                    said += piece
                return await process.wait(), said.decode()
        except TimeoutError:
            process.kill()
            await process.wait()
            return None, said.decode()

    async def does(self, expected: str, *words: str) -> str:
        """Run a command that works, and says this."""
        code, said = await self.run(*words)
        assert code == 0, f"karmadactl {' '.join(words)}: {said}"
        assert re.search(expected, said), f"karmadactl {' '.join(words)}: {said}"
        return said

    async def refuses(self, expected: str, *words: str) -> None:
        """Run a command that does not work, and says why."""
        code, said = await self.run(*words)
        assert code not in (0, None), f"karmadactl {' '.join(words)}: {said}"
        assert re.search(expected, said), f"karmadactl {' '.join(words)}: {said}"

    async def pod_of(self, cluster: str) -> str:
        """Return the name of a pod that runs there."""

        async def running() -> str:
            pods = await self.members[cluster].client.list_objects(ResourcePath(PODS, "default"))
            up = [each for each in pods if find_at(each, "status", "phase") == "Running"]
            return name_of(up[0]) if up else ""

        return await until(running)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    find_karmada("karmadactl")
    directory = tmp_path_factory.mktemp("desk")
    files = {
        "web.yaml": deployment("web", namespace="default"),
        "map.yaml": config_map("made", namespace="default"),
        "custom.yaml": CUSTOMIZATION,
    }
    for name, content in files.items():
        (directory / name).write_text(yaml.safe_dump(content))
    async with running_fleet(directory) as fleet, fleet.controllers():
        members = {name: await fleet.add_sim(name, nodes=1) for name in (*MEMBERS, "spare")}
        await fleet.join("west", members["west"])
        await register(fleet, "south", members["south"])
        async with running_agent(members["south"]):
            for name in MEMBERS:
                await until_ready(fleet, name)
            desk = Desk(fleet, members, directory)
            await desk.does("web created", "apply", "-f", "web.yaml", "--all-clusters")
            yield desk


async def test_objects_are_made_shown_changed_and_deleted_on_the_hub(desk: Desk) -> None:
    await desk.does("configmap/made created", "create", "-f", "map.yaml")
    await desk.does(r"web +Karmada", "get", "deployments")
    await desk.does(r"Name: +web", "describe", "deployment", "web")
    await desk.does("labeled", "label", "deployment", "web", "team=shop")
    await desk.does("annotated", "annotate", "deployment", "web", "note=x")
    change = '{"spec": {"replicas": 2}}'
    await desk.does("patched", "patch", "deployment", "web", "--type", "merge", "-p", change)
    await desk.does("no changes made", "edit", "deployment", "web")
    await desk.does('"made" deleted', "delete", "configmap", "made")
    await desk.does("PropagationPolicy", "explain", "propagationpolicy.spec")
    await desk.does("clusterpropagationpolicies", "api-resources", "-o", "name")
    await desk.does("policy.karmada.io/v1alpha1", "api-versions")


@pytest.mark.parametrize("cluster", MEMBERS)
async def test_members_are_looked_into_whoever_dials_whom(desk: Desk, cluster: str) -> None:
    pod = await desk.pod_of(cluster)
    here = ("-C", cluster, "--operation-scope", "members")
    at = ("--cluster", cluster, "--operation-scope", "members")
    await desk.does(rf"{pod} +{cluster}", "get", "pods", *here)
    await desk.does(rf"{cluster}-node-0 +{cluster}", "get", "nodes", *here)
    await desk.does(rf"Name: +{pod}", "describe", "pod", pod, *here)
    await desk.does(r"^\d+ ", "logs", pod, "-C", cluster)
    await desk.does(r"\d{4}", "exec", pod, *at, "--", "date")
    await desk.does(rf"{pod} +{cluster} +\d+m", "top", "pod", pod, "-C", cluster)
    await desk.does(rf"{cluster}-node-0 +{cluster} +\d+m", "top", "node", "--clusters", cluster)
    await desk.does("deployments.apps", "api-resources", *at, "--api-group", "apps", "-o", "name")
    await desk.does("apps/v1", "api-versions", *at)
    await desk.does("Deployment", "explain", "deployment.spec.replicas", *at)

    # It stays, and shows what the container says, until somebody ends it.
    code, said = await desk.run("attach", pod, *at, seconds=5)
    assert code is None
    assert re.search(r"^\d{6} ", said, re.MULTILINE)


async def test_all_members_are_looked_into_at_once(desk: Desk) -> None:
    for cluster in MEMBERS:
        await desk.pod_of(cluster)
    for words in (("get", "pods", "--operation-scope", "members"), ("top", "pods")):
        said = await desk.does("web-", *words)
        assert all(f" {cluster} " in said for cluster in MEMBERS)


async def test_clusters_are_cordoned_tainted_joined_and_let_go(desk: Desk) -> None:
    await desk.does("cordoned", "cordon", "west")
    await desk.does("uncordoned", "uncordon", "west")
    await desk.does("tainted", "taint", "clusters", "west", "a=b:NoSchedule")
    await desk.does("untainted", "taint", "clusters", "west", "a:NoSchedule-")
    spare = str(desk.directory / "spare" / "kubeconfig")
    await desk.does("joined successfully", "join", "spare", "--cluster-kubeconfig", spare)
    await until_ready(desk.fleet, "spare")
    await desk.does("", "unjoin", "spare", "--cluster-kubeconfig", spare)
    assert "spare" not in await desk.does("west", "get", "clusters")


async def test_a_running_object_is_promoted_and_customisations_are_tried_out(desk: Desk) -> None:
    solo = config_map("solo", namespace="default")
    await desk.members["west"].client.create(ResourcePath(CONFIG_MAPS, "default"), solo)
    promoted = ("promote", "configmap", "solo", "-C", "west", "-n", "default")
    await desk.does("promoted successfully", *promoted)
    await desk.does(r"solo +Karmada", "get", "configmap", "solo")
    await desk.does("TARGET: apps/v1 Deployment", "interpret", "-f", "custom.yaml", "--check")
    tried = ("interpret", "-f", "custom.yaml", "--operation", "InterpretReplica")
    await desk.does(r"replica:\s+7", *tried, "--observed-file", "web.yaml")


async def test_tokens_are_made_listed_and_deleted(desk: Desk) -> None:
    token = (await desk.does(r"^\w{6}\.\w{16}", "token", "create")).split()[0]
    await desk.does(token, "token", "list")
    await desk.does("deleted", "token", "delete", token.partition(".")[0])


async def test_what_is_about_an_installation_of_karmadas_says_that_there_is_none(
    desk: Desk,
) -> None:
    spare = str(desk.directory / "spare" / "kubeconfig")
    hub = str(desk.directory / "hub" / "kubeconfig")
    installed = ("--kubeconfig", spare, "--karmada-kubeconfig", hub)
    await desk.does(r"karmada-search +\| disabled", "addons", "list", *installed)
    await desk.refuses(
        "execute karmadactl init to deploy karmada first",
        "addons",
        "enable",
        "karmada-search",
        *installed,
    )
    await desk.refuses(
        'namespaces "karmada-system" not found', "deinit", "--kubeconfig", spare, "--force"
    )
    for words in (("completion", "bash"), ("options",), ("version",), ("init", "--help")):
        await desk.does("", *words)


async def test_the_page_has_every_subcommand(desk: Desk) -> None:
    _, said = await desk.run("--help")
    commands = set(re.findall(r"^  ([a-z][a-z-]+)  +\S", said, re.MULTILINE)) | {"options"}
    section = PAGE.read_text().partition("\n### `karmadactl`, command by command\n")[2]
    rows = section.partition("\n## ")[0].partition("\n### ")[0]
    written = {
        name
        for row in re.findall(r"^\| ([^|]+) \|", rows, re.MULTILINE)
        for name in re.findall(r"`([a-z-]+)`", row)
    }
    assert written == commands
