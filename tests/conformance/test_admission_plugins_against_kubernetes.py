"""What built-in admission plug-ins do: the same writes to a simulated member and a real cluster.

Each test is a story of requests. It is told to both, and both must give the same answers, word by
word, but for what only one server can know: UIDs, times, generated names, addresses. Where there is
no real cluster, what it answered is read from `admission_answers.json`: of an object a digest, of a
refusal every word. RECORD_ANSWERS=1 writes that file anew.
"""

import asyncio
import hashlib
import itertools
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import pytest_asyncio

from clusterspace.client.requests import ApiRequest
from clusterspace.client.resources import ClusterClient
from clusterspace.testing.hubs import (
    client_for_test,
    find_real_kubernetes,
    hub_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.stage import running_sim_member
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTROLLERS = (
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "resourcequota-controller",
    "namespace-controller",
)
RECORDING = Path(__file__).with_name("admission_answers.json")
MERGE = "application/merge-patch+json"
CORE = "/api/v1"
_rooms = itertools.count(1)


@dataclass
class Server:
    """One API server, and a namespace of it that nobody else uses."""

    client: ClusterClient
    namespace: str = ""
    answers: list[Any] = field(default_factory=list[Any])
    headers: tuple[tuple[str, str], ...] = ()
    """What goes along with every request: who is asking, say."""

    async def ask(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> tuple[int, Any, str]:
        """Send one request and return status, body and warnings."""
        plain, _, query = path.replace("NS", self.namespace).partition("?")
        request = ApiRequest(
            method,
            plain,
            query=tuple(tuple(each.split("=")) for each in query.split("&") if each),  # type: ignore[misc]
            headers=(("Content-Type", content), ("Accept", "application/json"), *self.headers),
            body=None if body is None else msgspec.json.encode(body),
        )
        answer = await self.client.connection.exchange(request)
        warnings = answer.headers.get("warning", "")
        return answer.status, msgspec.json.decode(answer.body), warnings

    async def tell(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send one request and remember the answer for the comparison."""
        status, answer, warnings = await self.ask(method, path, body, **options)
        kept = answer if answer.get("kind") == "Status" else stripped(answer)
        text = msgspec.json.encode([status, kept, warnings]).decode().replace(self.namespace, "NS")
        told = without_diffs(msgspec.json.decode(text.encode()))
        self.answers.append((f"{method} {path}", *told))
        return answer

    async def pod(self, name: str, **options: Any) -> Any:
        return await self.tell("POST", f"{CORE}/namespaces/NS/pods", pod(name, **options))

    async def make(self, path: str, body: Any) -> Any:
        """Create something that must be accepted, and whose answer is not compared."""
        status, answer, _ = await self.ask("POST", path, body)
        assert status == 201, answer
        return answer


Story = Callable[[Server], Awaitable[None]]


def without_diffs(value: Any) -> Any:
    """Return an answer without the diff of a server's own structures that ends a refusal."""
    if isinstance(value, str):
        return value.partition("@@")[0]
    if isinstance(value, list):
        return [without_diffs(each) for each in value]
    if isinstance(value, dict):
        return {key: without_diffs(each) for key, each in value.items()}
    return value


def stripped(answer: Any) -> Any:
    """Return an object without what only its server knows."""
    metadata = {
        key: value
        for key, value in answer.get("metadata", {}).items()
        if key not in {"uid", "resourceVersion", "creationTimestamp", "managedFields"}
    }
    status = {k: v for k, v in (answer.get("status") or {}).items() if k != "conditions"}
    kept = {**answer, "metadata": metadata, **({"status": status} if status else {})}
    text = msgspec.json.encode(kept).decode()
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-xxxxx", text)
    return msgspec.json.decode(text.encode())


def pod(name: str, *, containers: Any = None, annotations: Any = None, **spec: Any) -> Any:
    given = containers or [{"name": "web", "image": "web:1"}]
    metadata: dict[str, Any] = {"name": name}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": given, **spec},
    }


def container(name: str = "web", **resources: Any) -> Any:
    return {"name": name, "image": "web:1", "resources": resources}


def of(api_version: str, kind: str, name: str, **fields: Any) -> Any:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def limit_range(name: str, *limits: Any) -> Any:
    return of("v1", "LimitRange", name, spec={"limits": list(limits)})


def claim(name: str, size: str = "1Gi", **spec: Any) -> Any:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return of("v1", "PersistentVolumeClaim", name, spec={**wanted, **spec})


def quota(name: str, hard: dict[str, str], **spec: Any) -> Any:
    return of("v1", "ResourceQuota", name, spec={"hard": hard, **spec})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    async with running_sim_member("sim", tmp_path_factory.mktemp("sim")) as side:
        yield side.client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theirs(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[ClusterClient | None]:
    if find_real_kubernetes() is None:
        yield None
        return
    directory = tmp_path_factory.mktemp("real")
    async with (
        real_server_for_test(
            directory,
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            without="",
        ) as real,
        real_controllers_for_test(real, directory, *CONTROLLERS),
        client_for_test(real.settings) as client,
    ):
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    async with (
        hub_for_test(tmp_path_factory.mktemp("hub")) as settings,
        client_for_test(settings) as client,
    ):
        yield client


class Compare(Protocol):
    """Tells a story to a real cluster and to a simulated one, or to a hub."""

    async def __call__(self, story: Story, *, sim: bool = True) -> None: ...


def digested(answers: list[Any]) -> list[Any]:
    """Return answers as they are recorded."""
    kept: list[Any] = []
    for what, *rest in answers:
        if len(rest) == 3 and isinstance(rest[1], dict) and rest[1].get("kind") != "Status":
            text = msgspec.json.encode(rest[1], order="sorted")
            rest[1] = hashlib.sha256(text).hexdigest()[:16]
        elif len(rest) == 3 and isinstance(rest[1], dict):
            rest[1] = rest[1].get("message", "")
        kept.append([what, *rest])
    return msgspec.json.decode(msgspec.json.encode(kept))


def recorded() -> dict[str, list[Any]]:
    return msgspec.json.decode(RECORDING.read_bytes()) if RECORDING.exists() else {}


@pytest_asyncio.fixture(loop_scope="module")
async def compare(
    request: pytest.FixtureRequest,
    ours: ClusterClient,
    theirs: ClusterClient | None,
    hub: ClusterClient,
) -> Compare:
    """Tell a story to two, each in a namespace of its own, and compare what they answered."""
    test = re.sub(r"\[(sim|hub)\]$", "", str(request.node.name))

    async def told(story: Story, *, sim: bool = True) -> None:
        namespace = f"room-{next(_rooms)}"
        asked = (ours if sim else hub, theirs)
        servers = [Server(each, namespace) for each in asked if each is not None]

        async def tell(server: Server) -> None:
            await server.make(f"{CORE}/namespaces", of("v1", "Namespace", namespace))
            account = f"{CORE}/namespaces/NS/serviceaccounts/default"

            async def is_there() -> bool:
                return (await server.ask("GET", account))[0] == 200

            await until(is_there)
            await story(server)

        async with asyncio.TaskGroup() as tasks:
            for server in servers:
                tasks.create_task(tell(server))
        mine, expected = digested(servers[0].answers), recorded().get(test)
        if theirs is not None:
            compare_whole(servers[0].answers, servers[1].answers)
            real = digested(servers[1].answers)
            if os.environ.get("RECORD_ANSWERS"):
                RECORDING.write_bytes(
                    msgspec.json.format(msgspec.json.encode({**recorded(), test: real}), indent=1)
                )
                expected = real
        assert mine == expected

    return told


def compare_whole(ours: list[Any], theirs: list[Any]) -> None:
    """Compare answers with all they have, and show what differs."""
    different = [
        f"{real[0]}\n    {mine[1:]}\n    {real[1:]}"
        for mine, real in zip(ours, theirs, strict=True)
        if mine != real
    ]
    assert not different, "\n".join(different)


async def counted(server: Server, name: str, **used: str) -> None:
    """Wait until a quota's status says so; what is not named must be there."""
    place = f"{CORE}/namespaces/NS/resourcequotas/{name}"
    wanted = {key.replace("__", "/").replace("_", "."): value for key, value in used.items()}

    async def says_so() -> bool:
        _, found, _ = await server.ask("GET", place)
        status = found.get("status") or {}
        return status.get("hard") == found["spec"]["hard"] and (
            wanted.items() <= (status.get("used") or {}).items()
        )

    await until(says_so)


# -- LimitRanger ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_limit_ranges_complete_and_bound_pods(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        ranges = f"{CORE}/namespaces/NS/limitranges"
        await server.tell(
            "POST",
            ranges,
            limit_range(
                "containers",
                {
                    "type": "Container",
                    "min": {"cpu": "50m", "memory": "100Mi"},
                    "max": {"cpu": "500m", "memory": "500Mi"},
                    "default": {"cpu": "300m", "memory": "200Mi"},
                    "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
                    "maxLimitRequestRatio": {"cpu": "3"},
                },
            ),
        )

        # A kube-apiserver sees a LimitRange a moment after it was made.
        async def is_seen() -> bool:
            status, made, _ = await server.ask(
                "POST", f"{CORE}/namespaces/NS/pods?dryRun=All", pod("seen")
            )
            return status == 201 and "limits" in made["spec"]["containers"][0]["resources"]

        await until(is_seen)
        await server.pod("plain")
        await server.pod("partly", containers=[container(requests={"cpu": "150m"})])
        await server.pod("two", containers=[container("a"), container("b", limits={"cpu": "200m"})])
        await server.pod("init", initContainers=[container("first")])
        await server.pod("low", containers=[container(requests={"cpu": "10m"})])
        await server.pod("high", containers=[container(limits={"cpu": "2"})])
        await server.pod(
            "wide", containers=[container(requests={"cpu": "50m"}, limits={"cpu": "400m"})]
        )
        await server.pod("mem", containers=[container(limits={"memory": "1Gi"})])
        await server.pod("below", containers=[container(limits={"memory": "10Mi"})])

    await compare(story, sim=sim)


async def test_limit_ranges_bound_whole_pods_and_claims(compare: Compare) -> None:
    async def story(server: Server) -> None:
        ranges = f"{CORE}/namespaces/NS/limitranges"
        await server.make(
            ranges,
            limit_range(
                "all",
                {"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "200m"}},
                {
                    "type": "PersistentVolumeClaim",
                    "max": {"storage": "2Gi"},
                    "min": {"storage": "1Gi"},
                },
            ),
        )

        async def is_seen() -> bool:
            asked = f"{CORE}/namespaces/NS/persistentvolumeclaims?dryRun=All"
            return (await server.ask("POST", asked, claim("seen", "9Gi")))[0] == 403

        await until(is_seen)
        await server.pod("none")
        sized = container(requests={"cpu": "400m"}, limits={"cpu": "600m"})
        await server.pod("one", containers=[{**sized, "name": "a"}])
        await server.pod("two", containers=[{**sized, "name": "a"}, {**sized, "name": "b"}])
        await server.pod(
            "small", containers=[container(requests={"cpu": "1m"}, limits={"cpu": "1"})]
        )
        claims = f"{CORE}/namespaces/NS/persistentvolumeclaims"
        await server.tell("POST", claims, claim("small", "10Mi"))
        await server.tell("POST", claims, claim("large", "3Gi"))
        await server.tell("POST", f"{claims}?dryRun=All", claim("fits", "2Gi"))

    await compare(story)


async def test_limit_ranges_are_checked_themselves(compare: Compare) -> None:
    async def story(server: Server) -> None:
        ranges = f"{CORE}/namespaces/NS/limitranges"
        for item in (
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            {"type": "Pod", "default": {"cpu": "2"}},
            {"type": "Pod", "defaultRequest": {"cpu": "2"}},
            {"type": "PersistentVolumeClaim"},
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}},
            {"type": "Container", "max": {"cpu": "4", "memory": "2Gi"}, "min": {"cpu": "1"}},
        ):
            await server.tell("POST", ranges, limit_range("wrong", item))

    await compare(story)


# -- ServiceAccount ------------------------------------------------------------------------------


async def test_pods_have_their_account_and_its_token(compare: Compare) -> None:
    async def story(server: Server) -> None:
        accounts = f"{CORE}/namespaces/NS/serviceaccounts"
        await server.make(
            accounts, of("v1", "ServiceAccount", "silent", automountServiceAccountToken=False)
        )
        await server.make(
            accounts, of("v1", "ServiceAccount", "puller", imagePullSecrets=[{"name": "registry"}])
        )
        await server.make(
            accounts,
            of(
                "v1",
                "ServiceAccount",
                "strict",
                metadata={"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
                secrets=[{"name": "known"}],
            ),
        )
        await server.pod("plain")
        await server.pod("missing", serviceAccountName="nobody")
        await server.pod("opted-out", automountServiceAccountToken=False)
        await server.pod("silent", serviceAccountName="silent")
        await server.pod("loud", serviceAccountName="silent", automountServiceAccountToken=True)
        await server.pod("pulling", serviceAccountName="puller")
        await server.pod("own", serviceAccountName="puller", imagePullSecrets=[{"name": "mine"}])
        await server.pod("old-name", serviceAccount="puller")
        mount = {"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        await server.pod(
            "mounted",
            containers=[
                {"name": "a", "image": "a", "volumeMounts": [mount]},
                {"name": "b", "image": "b"},
            ],
            initContainers=[{"name": "c", "image": "c"}],
            volumes=[{"name": "mine", "emptyDir": {}}],
        )
        await server.pod(
            "secretive",
            serviceAccountName="strict",
            volumes=[{"name": "s", "secret": {"secretName": "unknown"}}],
        )
        variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
        await server.pod(
            "variable",
            serviceAccountName="strict",
            containers=[{"name": "web", "image": "web:1", "env": [variable]}],
        )
        await server.pod(
            "pull", serviceAccountName="strict", imagePullSecrets=[{"name": "unlisted"}]
        )
        mirror = {"kubernetes.io/config.mirror": "yes"}
        await server.pod("mirror", annotations=mirror, serviceAccountName="default")
        await server.pod(
            "mirror",
            annotations=mirror,
            volumes=[{"name": "s", "secret": {"secretName": "unknown"}}],
        )

    await compare(story)


# -- Priority, RuntimeClass, DefaultTolerationSeconds ----------------------------------------------


async def test_pods_get_the_priority_of_their_class(compare: Compare) -> None:
    async def story(server: Server) -> None:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        low = of("scheduling.k8s.io/v1", "PriorityClass", "low-NS", value=-5)
        low["metadata"]["name"] = f"low-{server.namespace}"
        shy = {**low, "value": 7, "preemptionPolicy": "Never"}
        shy["metadata"] = {"name": f"shy-{server.namespace}"}
        await server.make(classes, low)
        await server.make(classes, shy)

        async def is_seen() -> bool:
            asked = f"{CORE}/namespaces/NS/pods?dryRun=All"
            wanted = pod("seen", priorityClassName=f"shy-{server.namespace}")
            return (await server.ask("POST", asked, wanted))[0] == 201

        await until(is_seen)
        await server.pod("plain")
        await server.pod("low", priorityClassName=f"low-{server.namespace}")
        await server.pod("shy", priorityClassName=f"shy-{server.namespace}")
        await server.pod("unknown", priorityClassName="unknown")
        await server.pod("critical", priorityClassName="system-node-critical")
        await server.pod("numbered", priority=3)
        await server.pod("same", priority=0)
        await server.pod("both", priorityClassName=f"low-{server.namespace}", priority=3)
        await server.pod(
            "eager",
            priorityClassName=f"shy-{server.namespace}",
            preemptionPolicy="PreemptLowerPriority",
        )
        place = f"{CORE}/namespaces/NS/pods/low"
        await server.tell("PATCH", place, {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
        await server.tell("PATCH", place, {"spec": {"priority": 3}}, content=MERGE)
        await server.ask("DELETE", f"{classes}/low-{server.namespace}")
        await server.ask("DELETE", f"{classes}/shy-{server.namespace}")

    await compare(story)


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_runtime_classes_are_merged_into_pods(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        name = f"heavy-{server.namespace}"
        heavy = of(
            "node.k8s.io/v1",
            "RuntimeClass",
            name,
            handler="heavy",
            overhead={"podFixed": {"cpu": "250m", "memory": "64Mi"}},
            scheduling={
                "nodeSelector": {"runtime": "heavy"},
                "tolerations": [
                    {
                        "key": "runtime",
                        "operator": "Equal",
                        "value": "heavy",
                        "effect": "NoSchedule",
                    }
                ],
            },
        )
        await server.make("/apis/node.k8s.io/v1/runtimeclasses", heavy)
        await server.pod("heavy", runtimeClassName=name)
        await server.pod("unknown", runtimeClassName="unknown")
        await server.pod("claims", overhead={"cpu": "1"})
        await server.pod("differs", runtimeClassName=name, overhead={"cpu": "1"})
        await server.pod(
            "equal", runtimeClassName=name, overhead={"cpu": "0.25", "memory": "65536Ki"}
        )
        await server.pod("elsewhere", runtimeClassName=name, nodeSelector={"runtime": "light"})
        await server.pod(
            "both",
            runtimeClassName=name,
            nodeSelector={"zone": "a"},
            tolerations=[
                {"key": "runtime", "operator": "Exists"},
                {
                    "key": "node.kubernetes.io/unreachable",
                    "effect": "NoExecute",
                    "operator": "Exists",
                },
            ],
        )
        await server.ask("DELETE", f"/apis/node.k8s.io/v1/runtimeclasses/{name}")

    await compare(story, sim=sim)


async def test_classes_that_are_the_default_are_filled_in(compare: Compare) -> None:
    async def story(server: Server) -> None:
        name = f"main-{server.namespace}"
        await server.make(
            "/apis/storage.k8s.io/v1/storageclasses",
            of(
                "storage.k8s.io/v1",
                "StorageClass",
                name,
                provisioner="example.com/none",
                metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            ),
        )
        await server.make(
            "/apis/networking.k8s.io/v1/ingressclasses",
            of(
                "networking.k8s.io/v1",
                "IngressClass",
                name,
                spec={"controller": "example.com/none"},
                metadata={"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            ),
        )
        claims = f"{CORE}/namespaces/NS/persistentvolumeclaims"
        ingresses = "/apis/networking.k8s.io/v1/namespaces/NS/ingresses"
        backend = {"service": {"name": "web", "port": {"number": 80}}}

        async def is_seen() -> bool:
            _, asked, _ = await server.ask("POST", f"{claims}?dryRun=All", claim("seen"))
            return asked["spec"].get("storageClassName") == name

        await until(is_seen)
        await server.tell("POST", f"{claims}?dryRun=All", claim("plain"))
        await server.tell("POST", f"{claims}?dryRun=All", claim("none", storageClassName=""))
        await server.tell("POST", f"{claims}?dryRun=All", claim("own", storageClassName="other"))
        ingress = of("networking.k8s.io/v1", "Ingress", "web", spec={"defaultBackend": backend})
        await server.tell("POST", ingresses, ingress)
        ingress["metadata"] = {"name": "old", "annotations": {"kubernetes.io/ingress.class": "x"}}
        _, old, _ = await server.ask("POST", ingresses, ingress)
        server.answers.append(("old", old["spec"]))
        await server.ask("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}")
        await server.ask("DELETE", f"/apis/networking.k8s.io/v1/ingressclasses/{name}")

    await compare(story)


async def test_claims_grow_only_where_their_class_lets_them(compare: Compare) -> None:
    async def story(server: Server) -> None:
        for name, grows in (("grows", True), ("stays", False)):
            await server.make(
                "/apis/storage.k8s.io/v1/storageclasses",
                of(
                    "storage.k8s.io/v1",
                    "StorageClass",
                    f"{name}-{server.namespace}",
                    provisioner="kubernetes.io/no-provisioner",
                    allowVolumeExpansion=grows,
                ),
            )
        claims = f"{CORE}/namespaces/NS/persistentvolumeclaims"
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        for name in ("grows", "stays"):
            asked = claim(
                name, storageClassName=f"{name}-{server.namespace}", volumeName=f"v-{name}"
            )
            await server.make(claims, asked)
            status, _, _ = await server.ask("PATCH", f"{claims}/{name}", larger, content=MERGE)
            assert status in (403, 422)
            bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
            await server.ask("PATCH", f"{claims}/{name}/status", bound, content=MERGE)
        await server.tell("PATCH", f"{claims}/stays", larger, content=MERGE)
        status, _, _ = await server.ask("PATCH", f"{claims}/grows", larger, content=MERGE)
        server.answers.append(("grows", status))
        for name in ("grows", "stays"):
            await server.ask("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}-NS")

    # Nobody binds claims on a hub or on this cluster, so that the test says which are bound.
    await compare(story, sim=False)


async def test_there_is_one_default_among_priority_classes(compare: Compare) -> None:
    async def story(server: Server) -> None:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for name in ("first", "second"):
            wanted = of("scheduling.k8s.io/v1", "PriorityClass", name, value=9, globalDefault=True)

            async def is_taken(wanted: Any = wanted) -> bool:
                status, _, _ = await server.ask("POST", f"{classes}?dryRun=All", wanted)
                return status == (201 if wanted["metadata"]["name"] == "first" else 403)

            await until(is_taken)
            await server.tell("POST", classes, wanted)
        other = {**wanted, "globalDefault": False}
        await server.tell("POST", classes, other)
        await server.tell("PATCH", f"{classes}/second", {"globalDefault": True}, content=MERGE)
        await server.tell("PATCH", f"{classes}/first", {"description": "d"}, content=MERGE)
        await server.pod("plain")
        for name in ("first", "second"):
            await server.ask("DELETE", f"{classes}/{name}")

        async def is_gone() -> bool:
            _, made, _ = await server.ask(
                "POST", f"{CORE}/namespaces/NS/pods?dryRun=All", pod("seen")
            )
            return made.get("spec", {}).get("priority") == 0

        await until(is_gone)

    await compare(story)


# -- ResourceQuota -------------------------------------------------------------------------------


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_quotas_refuse_what_there_is_no_room_for(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        quotas = f"{CORE}/namespaces/NS/resourcequotas"
        hard = {
            "pods": "2",
            "requests.cpu": "1",
            "limits.cpu": "2",
            "memory": "1Gi",
            "requests.example.com/gpu": "1",
        }
        await server.make(quotas, quota("compute", hard))
        await counted(server, "compute", pods="0")
        sized = container(
            requests={"cpu": "600m", "memory": "100Mi"}, limits={"cpu": "800m", "memory": "200Mi"}
        )
        await server.pod("open")
        await server.pod("half", containers=[sized, container("b", requests={"cpu": "1m"})])
        await server.pod("first", containers=[sized])
        await counted(server, "compute", pods="1", requests_cpu="600m")
        await server.pod("second", containers=[sized])
        greedy = container(
            requests={"cpu": "5", "memory": "5Gi"}, limits={"cpu": "5", "memory": "5Gi"}
        )
        await server.pod("greedy", containers=[greedy])
        both = {"cpu": "1m", "memory": "1Mi", "example.com/gpu": "2"}
        await server.pod("gpu", containers=[container(requests=both, limits=both)])
        dry = f"{CORE}/namespaces/NS/pods?dryRun=All"
        small = {"cpu": "100m", "memory": "1Mi"}
        tiny = pod("tiny", containers=[container(requests=small, limits=small)])
        await server.tell("POST", dry, tiny)
        await server.tell("GET", f"{quotas}/compute")
        await server.tell("POST", dry.partition("?")[0], tiny)
        await counted(server, "compute", pods="2", requests_cpu="700m", memory="101Mi")
        await server.tell("GET", f"{quotas}/compute")
        await server.ask("DELETE", f"{CORE}/namespaces/NS/pods/first")
        await counted(server, "compute", pods="1", requests_cpu="100m", memory="1Mi")
        await server.tell("GET", f"{quotas}/compute")

    await compare(story, sim=sim)


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_quotas_count_objects_services_and_storage(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        quotas = f"{CORE}/namespaces/NS/resourcequotas"
        hard = {
            "count/deployments.apps": "1",
            "secrets": "1",
            "services": "2",
            "services.nodeports": "2",
            "services.loadbalancers": "0",
            "requests.storage": "3Gi",
            "persistentvolumeclaims": "2",
            "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
            "count/leases.coordination.k8s.io": "1",
        }
        await server.make(quotas, quota("objects", hard))
        await counted(server, "objects", secrets="0")
        await server.tell("GET", f"{quotas}/objects")
        secrets = f"{CORE}/namespaces/NS/secrets"
        for name in ("one", "two"):
            await server.tell("POST", secrets, of("v1", "Secret", name))
        leases = "/apis/coordination.k8s.io/v1/namespaces/NS/leases"
        for name in ("one", "two"):
            await server.tell("POST", leases, of("coordination.k8s.io/v1", "Lease", name))
        services = f"{CORE}/namespaces/NS/services"
        ports = [{"name": each, "port": 80 + index} for index, each in enumerate("abc")]
        for name, kind, count in (
            ("balanced", "LoadBalancer", 1),
            ("wide", "NodePort", 3),
        ):
            spec = {"type": kind, "ports": ports[:count]}
            await server.tell("POST", services, of("v1", "Service", name, spec=spec))
        plain = of("v1", "Service", "plain", spec={"ports": ports})
        await server.make(services, plain)
        await server.tell(
            "PATCH", f"{services}/plain", {"spec": {"type": "NodePort"}}, content=MERGE
        )
        claims = f"{CORE}/namespaces/NS/persistentvolumeclaims"
        await server.tell("POST", claims, claim("gold", "2Gi", storageClassName="gold"))
        await server.make(claims, claim("one", "2Gi", storageClassName="x"))
        await server.tell("POST", claims, claim("two", "2Gi", storageClassName="x"))
        await counted(server, "objects", secrets="1", services="1", requests_storage="2Gi")
        await server.tell("GET", f"{quotas}/objects")

    await compare(story, sim=sim)


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_quotas_count_what_is_in_their_scopes(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        quotas = f"{CORE}/namespaces/NS/resourcequotas"
        await server.make(quotas, quota("brief", {"pods": "0"}, scopes=["Terminating"]))
        await server.make(quotas, quota("guaranteed", {"pods": "0"}, scopes=["NotBestEffort"]))
        critical = {
            "scopeName": "PriorityClass",
            "operator": "In",
            "values": ["system-cluster-critical"],
        }
        await server.make(
            quotas,
            quota("critical", {"pods": "0"}, scopeSelector={"matchExpressions": [critical]}),
        )
        await server.make(
            quotas, quota("across", {"pods": "0"}, scopes=["CrossNamespacePodAffinity"])
        )
        for name in ("brief", "guaranteed", "critical", "across"):
            await counted(server, name, pods="0")
        await server.pod("free")
        await server.pod("brief", activeDeadlineSeconds=60)
        await server.pod("sized", containers=[container(requests={"cpu": "1m"})])
        await server.pod("critical", priorityClassName="system-cluster-critical")
        term = {
            "labelSelector": {"matchLabels": {"a": "b"}},
            "topologyKey": "zone",
            "namespaces": ["elsewhere"],
        }
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await server.pod("across", affinity=affinity)
        await server.tell(
            "PATCH",
            f"{CORE}/namespaces/NS/pods/free",
            {"spec": {"activeDeadlineSeconds": 60}},
            content=MERGE,
        )

    await compare(story, sim=sim)


@pytest.mark.parametrize("sim", [True, False], ids=["sim", "hub"])
async def test_of_fifty_at_once_no_more_pass_than_fit(compare: Compare, sim: bool) -> None:
    async def story(server: Server) -> None:
        quotas = f"{CORE}/namespaces/NS/resourcequotas"
        await server.make(quotas, quota("few", {"count/secrets": "7", "secrets": "9"}))
        await counted(server, "few", secrets="0")
        secrets = f"{CORE}/namespaces/NS/secrets"

        async def create(number: int) -> int:
            made = of("v1", "Secret", f"secret-{number}")
            return (await server.ask("POST", secrets, made))[0]

        async with asyncio.TaskGroup() as tasks:
            creating = [tasks.create_task(create(number)) for number in range(50)]
        passed = [each.result() for each in creating].count(201)
        server.answers.append(("passed", passed))
        _, found, _ = await server.ask("GET", secrets)
        server.answers.append(("stored", len(found["items"])))
        await counted(server, "few", secrets="7")
        assert passed == 7

    await compare(story, sim=sim)


# -- PodSecurity ---------------------------------------------------------------------------------


def secured(name: str, context: Any = None, **spec: Any) -> Any:
    """Return a pod with one container whose security context is this."""
    more = spec.pop("container", {})
    plain = {"name": "web", "image": "web:1", **more}
    return pod(name, containers=[{**plain, "securityContext": context or {}}], **spec)


GOOD: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
PORTS = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 81}]
PODS: tuple[Any, ...] = (
    pod("plain"),
    secured("good", GOOD),
    secured("privileged", {"privileged": True}),
    secured("caps", {**GOOD, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN", "CHOWN"]}}),
    secured("bind", {**GOOD, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
    secured("ports", GOOD, container={"ports": PORTS}),
    secured("host", GOOD, hostNetwork=True, hostPID=True, hostIPC=True),
    secured("path", GOOD, volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    secured("nfs", GOOD, volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
    secured("proc", {**GOOD, "procMount": "Unmasked"}, hostUsers=False),
    secured("selinux", {**GOOD, "seLinuxOptions": {"type": "x_t", "user": "u", "role": "r"}}),
    secured("engine", {**GOOD, "seLinuxOptions": {"type": "container_engine_t"}}),
    secured("pod-selinux", GOOD, securityContext={"seLinuxOptions": {"type": "y_t"}}),
    secured("unconfined", {**GOOD, "seccompProfile": {"type": "Unconfined"}}),
    secured("pod-unconfined", securityContext={"seccompProfile": {"type": "Unconfined"}}),
    secured(
        "pod-level",
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    ),
    secured("root", {**GOOD, "runAsUser": 0}),
    secured("pod-root", GOOD, securityContext={"runAsUser": 0, "runAsNonRoot": True}),
    secured("maybe-root", {**GOOD, "runAsNonRoot": False}),
    secured("own-users", {"allowPrivilegeEscalation": False}, hostUsers=False),
    secured("apparmor", {**GOOD, "appArmorProfile": {"type": "Unconfined"}}),
    secured(
        "sysctls",
        GOOD,
        securityContext={
            "sysctls": [
                {"name": "kernel.msgmax", "value": "1"},
                {"name": "net.ipv4.tcp_rmem", "value": "1"},
                {"name": "net.ipv4.tcp_syncookies", "value": "1"},
            ]
        },
    ),
    secured(
        "probe", GOOD, container={"livenessProbe": {"httpGet": {"host": "a.example", "port": 80}}}
    ),
    secured("windows", os={"name": "windows"}),
    secured(
        "host-process",
        hostNetwork=True,
        os={"name": "windows"},
        securityContext={"windowsOptions": {"hostProcess": True}},
    ),
    pod(
        "two",
        containers=[
            {"name": "a", "image": "a", "securityContext": {"privileged": True}},
            {"name": "b", "image": "b", "securityContext": {"privileged": True}},
        ],
        initContainers=[{"name": "c", "image": "c", "securityContext": GOOD}],
    ),
)


@pytest.mark.parametrize(
    ("level", "version"),
    [
        ("baseline", "latest"),
        ("restricted", "latest"),
        ("baseline", "v1.10"),
        ("restricted", "v1.10"),
        ("restricted", "v1.24"),
        ("restricted", "v1.34"),
    ],
)
async def test_pods_are_held_against_the_standards(
    compare: Compare, level: str, version: str
) -> None:
    async def story(server: Server) -> None:
        labels = {
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/enforce-version": version,
        }
        place = f"{CORE}/namespaces/NS"
        await server.tell("PATCH", place, {"metadata": {"labels": labels}}, content=MERGE)
        asked = f"{CORE}/namespaces/NS/pods?dryRun=All"

        async def is_seen() -> bool:
            bad = secured("bad", {"privileged": True})
            return (await server.ask("POST", asked, bad))[0] == 403

        await until(is_seen)
        for each in PODS:
            await server.tell("POST", asked, each)
        spec = {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": PODS[2]["spec"],
            },
        }
        await server.tell(
            "POST",
            "/apis/apps/v1/namespaces/NS/deployments?dryRun=All",
            of("apps/v1", "Deployment", "web", spec=spec),
        )

    await compare(story)


async def test_policies_of_namespaces_are_checked_and_tried(compare: Compare) -> None:
    async def story(server: Server) -> None:
        wrong = {
            "pod-security.kubernetes.io/enforce": "strict",
            "pod-security.kubernetes.io/warn-version": "1.24",
        }
        labelled = of("v1", "Namespace", f"other-{server.namespace}", metadata={"labels": wrong})
        await server.tell("POST", f"{CORE}/namespaces", labelled)
        place = f"{CORE}/namespaces/NS"
        await server.tell("PATCH", place, {"metadata": {"labels": wrong}}, content=MERGE)
        for name in ("a", "b", "c"):
            await server.pod(name)
        await server.tell("POST", f"{CORE}/namespaces/NS/pods", PODS[2])

        async def changed(**labels: str) -> None:
            given = {f"pod-security.kubernetes.io/{k}": v for k, v in labels.items()}
            patch = {"metadata": {"labels": given}}
            await server.tell("PATCH", place, patch, content=MERGE)

        async def are_listed() -> bool:
            # Kubernetes looks at the pods of a namespace through a cache that follows.
            labels = {"pod-security.kubernetes.io/enforce": "baseline"}
            _, _, warning = await server.ask(
                "PATCH", f"{place}?dryRun=All", {"metadata": {"labels": labels}}, content=MERGE
            )
            return "violate" in warning

        await until(are_listed)
        await changed(enforce="baseline")
        await changed(enforce="restricted")
        await changed(enforce="privileged", audit="restricted", warn="baseline")
        image = {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}
        strategic = "application/strategic-merge-patch+json"
        path = f"{CORE}/namespaces/NS/pods/privileged"

        async def is_seen() -> bool:
            _, _, warning = await server.ask(
                "POST", f"{CORE}/namespaces/NS/pods?dryRun=All", secured("x", {"privileged": True})
            )
            return "baseline" in warning

        await until(is_seen)
        await server.tell("PATCH", path, {"metadata": {"labels": {"x": "y"}}}, content=MERGE)
        await server.tell("PATCH", path, image, content=strategic)

    await compare(story)


# -- where a hub differs: its pods are templates ---------------------------------------------------


async def test_a_hub_warns_of_what_only_members_can_have(hub: ClusterClient) -> None:
    server = Server(hub, f"room-{next(_rooms)}")
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    await server.make(
        f"{CORE}/namespaces", of("v1", "Namespace", server.namespace, metadata={"labels": strict})
    )
    pods = f"{CORE}/namespaces/NS/pods"

    status, made, warning = await server.ask(
        "POST", pods, pod("web", serviceAccountName="robot", priorityClassName="gold")
    )

    assert status == 201
    assert f"there is no ServiceAccount {server.namespace}/robot here" in warning
    assert "no PriorityClass with name gold was found here" in warning
    assert 'would violate PodSecurity \\"restricted:latest\\": allowPrivilegeEscalation' in warning
    assert "volumes" not in made["spec"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": PODS[2]["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    status, _, warning = await server.ask(
        "POST",
        "/apis/apps/v1/namespaces/NS/deployments",
        of("apps/v1", "Deployment", "web", spec=spec),
    )
    assert status == 201
    assert "would violate PodSecurity" in warning
    assert "privileged" in warning


async def test_a_hub_fills_in_no_defaults_that_are_a_clusters_own(hub: ClusterClient) -> None:
    server = Server(hub, f"room-{next(_rooms)}")
    await server.make(f"{CORE}/namespaces", of("v1", "Namespace", server.namespace))
    mark = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    await server.make(
        "/apis/storage.k8s.io/v1/storageclasses",
        of("storage.k8s.io/v1", "StorageClass", "main", provisioner="p.example", metadata=mark),
    )
    await server.make(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        of("scheduling.k8s.io/v1", "PriorityClass", "main", value=9, globalDefault=True),
    )
    await server.make(
        f"{CORE}/namespaces/NS/limitranges",
        limit_range("some", {"type": "Container", "default": {"cpu": "1"}}),
    )

    made = await server.make(f"{CORE}/namespaces/NS/persistentvolumeclaims", claim("data"))
    new = await server.make(f"{CORE}/namespaces/NS/pods", pod("new"))
    running = pod("running", annotations={"work.karmada.io/conflict-resolution": "overwrite"})
    taken_over = await server.make(f"{CORE}/namespaces/NS/pods", running)

    assert "storageClassName" not in made["spec"]
    assert (new["spec"]["priority"], "priorityClassName" in new["spec"]) == (0, False)
    assert new["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert taken_over["spec"]["containers"][0]["resources"] == {}
    await server.ask("DELETE", "/apis/storage.k8s.io/v1/storageclasses/main")
    await server.ask("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/main")


async def test_a_hub_copies_no_pull_secrets_into_templates(hub: ClusterClient) -> None:
    server = Server(hub, f"room-{next(_rooms)}")
    await server.make(f"{CORE}/namespaces", of("v1", "Namespace", server.namespace))
    accounts = f"{CORE}/namespaces/NS/serviceaccounts"
    await server.make(
        accounts, of("v1", "ServiceAccount", "puller", imagePullSecrets=[{"name": "registry"}])
    )

    made = await server.make(f"{CORE}/namespaces/NS/pods", pod("web", serviceAccountName="puller"))

    assert "imagePullSecrets" not in made["spec"]
    assert [each["name"][:16] for each in made["spec"]["volumes"]] == ["kube-api-access-"]


# -- NodeRestriction -----------------------------------------------------------------------------


async def test_a_node_writes_itself_and_its_pods_only(compare: Compare) -> None:
    async def story(server: Server) -> None:
        one, other = f"one-{server.namespace}", f"other-{server.namespace}"
        nodes = f"{CORE}/nodes"
        await server.ask(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            of(
                "rbac.authorization.k8s.io/v1",
                "ClusterRoleBinding",
                f"nodes-{server.namespace}",
                roleRef={
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                subjects=[
                    {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Group",
                        "name": "system:nodes",
                    }
                ],
            ),
        )
        server.headers = (
            ("Impersonate-User", f"system:node:{one}"),
            ("Impersonate-Group", "system:nodes"),
        )

        async def may_read() -> bool:
            return (await server.ask("GET", nodes))[0] == 200

        await until(may_read)
        bad = {"node-restriction.kubernetes.io/a": "b", "x.kubernetes.io/y": "z"}
        await server.tell("POST", nodes, of("v1", "Node", one, metadata={"labels": bad}))
        good = {"kubernetes.io/os": "linux", "team": "a", "node.kubernetes.io/x": "y"}
        await server.make(nodes, of("v1", "Node", one, metadata={"labels": good}))
        await server.tell("POST", nodes, of("v1", "Node", other))
        for patch in (
            {"metadata": {"labels": {"x.kubernetes.io/y": "z"}}},
            {"metadata": {"labels": {"team": "b"}}},
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        ):
            status, answer, _ = await server.ask("PATCH", f"{nodes}/{one}", patch, content=MERGE)
            told = str(answer.get("message", status)).replace(server.namespace, "NS")
            server.answers.append((str(patch), status, told))
        await server.pod("plain")
        mirror = {"kubernetes.io/config.mirror": "yes"}
        await server.pod("elsewhere", annotations=mirror, nodeName=other)
        await server.pod("unowned", annotations=mirror, nodeName=one)
        leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
        lease = of("coordination.k8s.io/v1", "Lease", one)
        await server.tell("POST", leases.format("NS"), lease)
        await server.tell(
            "POST",
            leases.format("kube-node-lease"),
            of("coordination.k8s.io/v1", "Lease", other),
        )
        tokens = f"{CORE}/namespaces/NS/serviceaccounts/default/token"
        for spec in (
            {},
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}},
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}},
        ):
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [], **spec},
            }
            await server.tell("POST", tokens, body)
        server.headers = ()
        await server.make(f"{CORE}/namespaces/NS/pods", pod("theirs"))
        server.headers = (
            ("Impersonate-User", f"system:node:{one}"),
            ("Impersonate-Group", "system:nodes"),
        )
        place = f"{CORE}/namespaces/NS/pods/theirs"

        async def is_known() -> bool:
            # The real plug-in looks pods up in a cache, which may not have this one yet.
            return (await server.ask("DELETE", place))[0] != 404

        await until(is_known)
        await server.tell("DELETE", place)
        await server.tell("PATCH", place, {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
        await server.tell("PATCH", f"{place}/status", {"status": {"reason": "x"}}, content=MERGE)
        server.headers = ()
        await server.ask("DELETE", f"{nodes}/{one}")

    await compare(story)


# -- evictions -----------------------------------------------------------------------------------


async def test_evictions_take_room_in_their_budget(compare: Compare) -> None:
    async def story(server: Server) -> None:
        pods = f"{CORE}/namespaces/NS/pods"
        budgets = "/apis/policy/v1/namespaces/NS/poddisruptionbudgets"

        async def evict(name: str, **options: Any) -> None:
            body = of("policy/v1", "Eviction", name, **options)
            await server.tell("POST", f"{pods}/{name}/eviction", body)

        async def run(name: str, *, ready: bool = True, app: str = "web") -> None:
            made = pod(name)
            made["metadata"]["labels"] = {"app": app}
            await server.make(pods, made)
            condition = {"type": "Ready", "status": "True" if ready else "False"}
            status = {"phase": "Running", "conditions": [condition]}
            await server.ask("PATCH", f"{pods}/{name}/status", {"status": status}, content=MERGE)

        async def set_status(name: str, **status: Any) -> None:
            await server.ask("PATCH", f"{budgets}/{name}/status", {"status": status}, content=MERGE)

        async def budget(name: str) -> Any:
            _, found, _ = await server.ask("GET", f"{budgets}/{name}")
            status = found["status"]
            named = sorted(status.get("disruptedPods") or {})
            reasons = [each["reason"] for each in status.get("conditions") or ()]
            server.answers.append((name, status.get("disruptionsAllowed"), named, reasons))

        spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
        await server.make(budgets, of("policy/v1", "PodDisruptionBudget", "web", spec=spec))
        for name in ("a", "b", "c", "d"):
            await run(name)
        await run("unready", ready=False)
        pending = pod("pending")
        pending["metadata"]["labels"] = {"app": "web"}
        await server.make(pods, pending)
        await evict("pending")
        await set_status(
            "web",
            observedGeneration=1,
            disruptionsAllowed=2,
            currentHealthy=4,
            desiredHealthy=2,
            expectedPods=5,
        )
        await evict("a", deleteOptions={"dryRun": ["All"]})
        await budget("web")
        await evict("a")
        await budget("web")
        await evict("unready")
        await evict("b")
        await budget("web")
        await evict("c")
        await set_status("web", currentHealthy=2)
        await evict("c")
        await evict("missing")
        await run("free", app="other")
        await evict("free")
        other = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await server.make(budgets, of("policy/v1", "PodDisruptionBudget", "second", spec=other))
        _, answer, _ = await server.ask(
            "POST", f"{pods}/d/eviction", of("policy/v1", "Eviction", "d")
        )
        server.answers.append(("two budgets", answer["code"], answer["message"]))

    await compare(story, sim=False)


async def test_of_many_evictions_at_once_no_more_pass_than_a_budget_allows(
    compare: Compare,
) -> None:
    async def story(server: Server) -> None:
        pods = f"{CORE}/namespaces/NS/pods"
        budgets = "/apis/policy/v1/namespaces/NS/poddisruptionbudgets"
        spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
        await server.make(budgets, of("policy/v1", "PodDisruptionBudget", "web", spec=spec))
        for number in range(8):
            made = pod(f"p-{number}")
            made["metadata"]["labels"] = {"app": "web"}
            await server.make(pods, made)
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            place = f"{pods}/p-{number}/status"
            await server.ask("PATCH", place, {"status": status}, content=MERGE)
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": 3,
            "currentHealthy": 5,
            "desiredHealthy": 2,
            "expectedPods": 8,
        }
        await server.ask("PATCH", f"{budgets}/web/status", {"status": status}, content=MERGE)

        async def evict(number: int) -> int:
            body = of("policy/v1", "Eviction", f"p-{number}")
            return (await server.ask("POST", f"{pods}/p-{number}/eviction", body))[0]

        async with asyncio.TaskGroup() as tasks:
            evicting = [tasks.create_task(evict(number)) for number in range(8)]
        server.answers.append(("evicted", sorted(each.result() for each in evicting)))

    await compare(story, sim=False)
