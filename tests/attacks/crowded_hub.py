"""A hub in a process of its own, a tenant who attacks it, and a bystander who notices or not."""

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.hubs import ADMIN_TOKEN, Answer, RunningHub, running_server

TENANT_TOKEN = "tenant-token"
BYSTANDER_TOKEN = "bystander-token"
TENANT = "tenant"
JSON = "application/json"
ROOT = Path(__file__).resolve().parents[2]
STALLS = re.compile(rb'clusterspace_event_loop_stall_seconds_bucket\{le="([^"]+)"\} ([0-9.]+)')
TOKENS = f"""\
{ADMIN_TOKEN},admin,admin,"system:masters"
{TENANT_TOKEN},tenant,tenant,"tenants"
{BYSTANDER_TOKEN},bystander,bystander,"readers"
"""


@dataclass
class Waits:
    """What a bystander saw; filled in when they are done."""

    asked: int = 0
    worst: float = 0.0
    median: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True)
class CrowdedHub:
    """A running hub, with what its users may do."""

    hub: RunningHub

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        token: str = TENANT_TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a body as it is, as the tenant unless told otherwise."""
        connection = self.hub.connections.open()
        sent = {"Authorization": f"Bearer {token}", "Content-Type": content_type, **(headers or {})}
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read())
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            return Answer(0, {}, b"")  # refused before it was all sent
        finally:
            connection.close()

    def send_framed(self, path: str, chunks: bytes) -> int:
        """Post a chunked body, framed by whoever wrote it; return the answer's code."""
        connection = self.hub.connections.open()
        connection.putrequest("POST", path)
        connection.putheader("Authorization", f"Bearer {TENANT_TOKEN}")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        connection.send(chunks)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status

    @contextmanager
    def bystander(self) -> Generator[Waits]:
        """Have somebody read small objects while the block lasts."""
        waits = Waits()
        command = [sys.executable, "-m", "tests.attacks.bystander"]
        command += [self.hub.url, str(self.hub.authority), BYSTANDER_TOKEN]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield waits
        finally:
            output, _ = process.communicate(timeout=60)
            vars(waits).update(json.loads(output))

    def stalls(self) -> dict[float, float]:
        """Return how often the hub's loop was kept waiting for at most so many seconds."""
        page = self.send("GET", "/metrics", token=ADMIN_TOKEN).body
        return {float(most): float(count) for most, count in STALLS.findall(page)}

    def resident_bytes(self) -> int:
        """Return how much memory the hub's process has."""
        page = self.send("GET", "/metrics", token=ADMIN_TOKEN).body
        found = re.search(rb"process_resident_memory_bytes ([0-9.e+]+)", page)
        assert found is not None
        return int(float(found[1]))


def longest_stall(before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """Return the bound under which every stall between two looks was."""
    new = {most: count - before.get(most, 0) for most, count in after.items()}
    return min((most for most, count in new.items() if count == new[float("inf")]), default=0.0)


@contextmanager
def crowded_hub(directory: Path, *, store: str = "memory") -> Generator[CrowdedHub]:
    """Run a hub whose tenant administers one namespace and may ask for certificates."""
    tokens = directory / "tokens.csv"
    tokens.write_text(TOKENS)
    command = ("hub", "--port", "0", "--store", store, "--token-auth-file", str(tokens))
    with running_server(directory, *command) as hub:
        for path, wanted in _WORLD:
            hub.create(path, wanted)
        yield CrowdedHub(hub)


def _bound(kind: str, name: str, role: str, user: str, **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REQUESTERS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "requesters"},
    "rules": [
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests"],
            "verbs": ["create"],
        }
    ],
}
_WORLD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/api/v1/namespaces", {"metadata": {"name": TENANT}}),
    (f"{_RBAC}/clusterroles", _REQUESTERS),
    (f"{_RBAC}/clusterrolebindings", _bound("ClusterRoleBinding", "csr", "requesters", "tenant")),
    (f"{_RBAC}/clusterrolebindings", _bound("ClusterRoleBinding", "see", "view", "bystander")),
    (
        f"{_RBAC}/namespaces/{TENANT}/rolebindings",
        _bound("RoleBinding", "tenant", "admin", "tenant", namespace=TENANT),
    ),
)
