"""What a simulated member is to the outside: a cluster like others, with an identity of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.component.sim_member_site import NAMESPACES, Client, member_site

from clusterspace.kube.objects import find_at

PODS = "/api/v1/namespaces/default/pods"
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: eA==",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "web:1"}]},
    }


async def running_pod(client: Client, name: str) -> Any:
    assert (await client.ask("POST", PODS, pod(name)))[0] == 201
    for _ in range(100):
        held = await client.get(f"{PODS}/{name}")
        if held["status"]["phase"] == "Running":
            return held
        await asyncio.sleep(0.05)
    raise AssertionError(f"pod {name} is not running")


async def test_a_member_serves_metrics_and_none_of_the_fleets_own_kinds(tmp_path: Path) -> None:
    async with member_site(tmp_path) as client:
        groups = {each["name"] for each in (await client.get("/apis"))["groups"]}
        definitions = await client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        documents = (await client.get("/openapi/v3"))["paths"]

        assert "metrics.k8s.io" in groups
        assert definitions["items"] == []
        assert "apis/metrics.k8s.io/v1beta1" in documents
        assert await client.get(documents["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"])


@pytest.mark.parametrize("path", ["namespaces/default/pods", "nodes"])
async def test_whose_metrics_are_not_there_is_said_as_metrics_server_says_it(
    tmp_path: Path, path: str
) -> None:
    async with member_site(tmp_path) as client:
        status, body = await client.ask("GET", f"/apis/metrics.k8s.io/v1beta1/{path}/gone")

    assert (status, f'{path.rpartition("/")[2]} \\"gone\\" not found' in body.decode()) == (
        404,
        True,
    )


async def test_who_may_only_read_gets_no_shell(tmp_path: Path) -> None:
    role = {
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get"]}],
    }
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
    }
    rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    async with member_site(tmp_path) as client:
        await running_pod(client, "p")
        assert (await client.ask("POST", f"{rights}/roles", role))[0] == 201
        assert (await client.ask("POST", f"{rights}/rolebindings", binding))[0] == 201
        viewer = replace(client, token="viewer")

        assert (await viewer.ask("GET", f"{PODS}/p"))[0] == 200
        path = f"{PODS}/p/exec?command=ls&stdout=true"
        assert (await viewer.ask("GET", path, None, *UPGRADE))[0] == 403


async def test_a_seed_makes_a_member_repeatable_and_its_absence_makes_it_unique(
    tmp_path: Path,
) -> None:
    async def identity(directory: Path, seed: int | None) -> str:
        async with member_site(directory, seed=seed) as client:
            found = await client.get(f"{NAMESPACES}/kube-system")
            return found["metadata"]["uid"]

    seeded = [await identity(tmp_path / str(index), seed=7) for index in range(2)]
    unseeded = [await identity(tmp_path / str(index), seed=None) for index in range(2, 4)]

    assert seeded[0] == seeded[1]
    assert len({*seeded, *unseeded}) == 3


async def test_controllers_write_under_the_names_clients_know(tmp_path: Path) -> None:
    async with member_site(tmp_path) as client:
        held = await running_pod(client, "p")

        managers = {
            (each["manager"], each.get("subresource", ""))
            for each in held["metadata"]["managedFields"]
        }
        assert ("kubelet", "status") in managers


async def until(client: Client, path: str, is_so: Callable[[Any], bool]) -> Any:
    found: Any = None
    for _ in range(400):
        found = await client.get(path)
        if is_so(found):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is {found}")


async def test_the_log_of_a_program_is_what_it_wrote(tmp_path: Path) -> None:
    script = "echo hello $NAME; echo again; exit 3"
    container = {
        "name": "c",
        "image": "busybox:1",
        "command": ["sh", "-c", script],
        "env": [{"name": "NAME", "value": "world"}],
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    once = {"metadata": {"name": "p"}, "spec": spec}
    again = {"metadata": {"name": "q"}, "spec": {"containers": [container]}}
    async with member_site(tmp_path) as client:
        for each in (once, again):
            assert (await client.ask("POST", PODS, each))[0] == 201

        ended = await until(client, f"{PODS}/p", lambda found: found["status"]["phase"] == "Failed")
        state = ended["status"]["containerStatuses"][0]["state"]
        assert state["terminated"]["exitCode"] == 3
        written = b"hello world\nagain\n"
        assert await client.ask("GET", f"{PODS}/p/log") == (200, written)
        assert await client.ask("GET", f"{PODS}/p/log?tailLines=1") == (200, b"again\n")
        assert await client.ask("GET", f"{PODS}/p/log?follow=true") == (200, written)

        await until(
            client,
            f"{PODS}/q",
            lambda found: (
                find_at(found, "status", "containerStatuses")
                and found["status"]["containerStatuses"][0]["restartCount"] == 1
            ),
        )
        assert await client.ask("GET", f"{PODS}/q/log?previous=true") == (200, written)
        assert (await client.ask("GET", f"{PODS}/p/log?previous=true"))[0] == 400


async def test_an_ephemeral_container_is_added_to_a_running_pod(tmp_path: Path) -> None:
    async with member_site(tmp_path) as client:
        found = await running_pod(client, "p")
        debug = {"name": "debug", "image": "busybox:1", "command": ["sleep", "1000"]}
        found["spec"]["ephemeralContainers"] = [debug]
        assert (await client.ask("PUT", f"{PODS}/p/ephemeralcontainers", found))[0] == 200

        added = await until(
            client,
            f"{PODS}/p",
            lambda found: "ephemeralContainerStatuses" in found["status"],
        )

        (status,) = added["status"]["ephemeralContainerStatuses"]
        assert status["name"] == "debug"
        assert "running" in status["state"]


async def test_a_pod_has_the_priority_of_its_class(tmp_path: Path) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    async with member_site(tmp_path) as client:
        for name, value, is_default in (("high", 1000, False), ("usual", 7, True)):
            body = {"metadata": {"name": name}, "value": value, "globalDefault": is_default}
            assert (await client.ask("POST", classes, body))[0] == 201

        named = pod("a")
        named["spec"]["priorityClassName"] = "high"
        assert (await client.ask("POST", PODS, named))[0] == 201
        assert (await client.ask("POST", PODS, pod("b")))[0] == 201
        missing = pod("c")
        missing["spec"]["priorityClassName"] = "nobody"
        status, body = await client.ask("POST", PODS, missing)

        assert (await client.get(f"{PODS}/a"))["spec"]["priority"] == 1000
        assert (await client.get(f"{PODS}/b"))["spec"]["priorityClassName"] == "usual"
        assert status == 403
        assert b"no PriorityClass with name nobody was found" in body


async def test_a_workload_in_an_ending_namespace_is_left_alone(tmp_path: Path) -> None:
    base = f"{NAMESPACES}/team"
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    controller = {
        "metadata": {"name": "web", "finalizers": ["example.com/hold"]},
        "spec": {"replicas": 2, "selector": labels, "template": template},
    }
    path = f"{base}/replicationcontrollers"
    async with member_site(tmp_path) as client:
        assert (await client.ask("POST", NAMESPACES, {"metadata": {"name": "team"}}))[0] == 201
        assert (await client.ask("POST", path, controller))[0] == 201
        await until(client, f"{base}/pods", lambda found: len(found["items"]) == 2)
        assert (await client.ask("DELETE", base))[0] == 200
        await until(client, f"{base}/pods", lambda found: not found["items"])
        marked = await until(
            client, f"{path}/web", lambda found: "deletionTimestamp" in found["metadata"]
        )

        # Something behind it in the same queue: by then it has been looked at, and left alone.
        await running_pod(client, "later")
        settled = await client.get(f"{path}/web")
        assert "conditions" not in settled["status"]
        writes = int(settled["metadata"]["resourceVersion"]) - int(
            marked["metadata"]["resourceVersion"]
        )
        assert writes < 50


async def test_a_refusal_is_told_once_and_tried_again_with_patience(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/replicationcontrollers"
    labels = {"app": "web"}
    spec = {**pod("x")["spec"], "priorityClassName": "nobody"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    controller = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": labels, "template": template},
    }
    async with member_site(tmp_path) as client:
        assert (await client.ask("POST", path, controller))[0] == 201
        failed = await until(
            client, f"{path}/web", lambda found: found.get("status", {}).get("conditions")
        )
        (condition,) = failed["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "no PriorityClass with name nobody was found" in condition["message"]
        await running_pod(client, "later")
        assert (await client.get(f"{path}/web"))["metadata"] == failed["metadata"]

        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        assert (await client.ask("POST", classes, {"metadata": {"name": "nobody"}, "value": 1}))[
            0
        ] == 201
        await until(
            client, f"{path}/web", lambda found: "conditions" not in found.get("status", {})
        )


async def test_a_settled_member_writes_nothing(tmp_path: Path) -> None:
    labels = {"app": "web"}
    container = {"name": "c", "image": "web:1", "ports": [{"name": "http", "containerPort": 80}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    workload = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    ended = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    made = {
        "/apis/apps/v1/namespaces/default/deployments": workload,
        "/apis/apps/v1/namespaces/default/daemonsets": {
            key: value for key, value in workload.items() if key != "replicas"
        },
        "/api/v1/namespaces/default/services": {"selector": labels, "ports": ports},
        "/api/v1/namespaces/default/persistentvolumeclaims": claim,
        "/api/v1/namespaces/default/resourcequotas": {"hard": {"pods": "9", "cpu": "2"}},
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
            "selector": {"matchLabels": labels},
            "maxUnavailable": "50%",
        },
        "/apis/batch/v1/namespaces/default/jobs": ended,
    }
    looked_at = (*made, "/api/v1/nodes", "/api/v1/namespaces/default/endpoints", PODS)

    async def versions(client: Client) -> list[str]:
        lists = [(await client.get(path))["items"] for path in looked_at]
        return sorted(each["metadata"]["resourceVersion"] for items in lists for each in items)

    async with member_site(tmp_path) as client:
        for path, spec in made.items():
            assert (await client.ask("POST", path, {"metadata": {"name": "x"}, "spec": spec}))[
                0
            ] == 201
        job = "/apis/batch/v1/namespaces/default/jobs/x"
        await until(client, job, lambda found: "completionTime" in found.get("status", {}))
        before: list[str] = []
        seen: list[str] = []
        for _ in range(20):
            before, seen = seen, await versions(client)
            if before == seen:
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"still writing: {set(seen) - set(before)}")
