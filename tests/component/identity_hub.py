"""A real hub over TLS, in the test's own event loop, and kubectl to talk to it."""

import asyncio
import json
import os
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.state import HubState
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.kube.objects import Object
from clusterspace.roots.hub import running_hub
from clusterspace.roots.installation import Installation
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.stage import PATIENCE

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
STATIC_TOKENS = 'alice-token,alice,1,"dev"\nroot-token,root,0,"system:masters"\n'


@dataclass(frozen=True)
class Answer:
    """What the hub answered."""

    code: int
    body: Any


@dataclass(frozen=True)
class IdentityHub:
    """A running hub."""

    url: str
    directory: Path
    installation: Installation
    authority: Authority
    tls: ssl.SSLContext
    state: HubState

    @property
    def kubeconfig(self) -> Path:
        return self.installation.kubeconfig

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        token: str = "",
        certificate: tuple[Path, Path] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Ask the hub, with a token, a certificate, or as nobody."""
        context = ssl.create_default_context(cafile=str(self.installation.authority_file))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        headers = {"Content-Type": content_type}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        return await asyncio.to_thread(_ask, asked, context)

    async def kubectl(self, *arguments: str, kubeconfig: Path | None = None) -> str:
        """Run kubectl as the administrator, or with another kubeconfig; return what it prints."""
        code, out, err = await self.try_kubectl(*arguments, kubeconfig=kubeconfig)
        assert code == 0, err
        return out

    async def try_kubectl(
        self, *arguments: str, kubeconfig: Path | None = None
    ) -> tuple[int, str, str]:
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip("kubectl is not installed")
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig)}
        environment["HOME"] = str(self.directory)
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def allow_accounts_to_read_namespaces(self) -> None:
        """Give every service account something it may do, so that a login can be seen to work."""
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "accounts-read"},
            "roleRef": {**group, "kind": "ClusterRole", "name": "view"},
            "subjects": [{**group, "name": "system:serviceaccounts"}],
        }
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        answer = await self.ask("POST", path, binding, token="root-token")
        assert answer.code == 201, answer.body

    def write_kubeconfig(self, name: str, user: Object) -> Path:
        """Write a kubeconfig that logs in as the user says."""
        cluster = {
            "server": self.url,
            "certificate-authority": str(self.installation.authority_file),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "hub",
            "clusters": [{"name": "hub", "cluster": cluster}],
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "me"}}],
            "users": [{"name": "me", "user": user}],
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path


def _ask(asked: urllib.request.Request, context: ssl.SSLContext) -> Answer:
    try:
        with urllib.request.urlopen(asked, context=context, timeout=60) as answered:
            return Answer(answered.status, json.loads(answered.read()))
    except urllib.error.HTTPError as refused:
        with refused:
            return Answer(refused.code, json.loads(refused.read()))


@asynccontextmanager
async def running_identity_hub(
    directory: Path, *, accepts_karmada_agents: bool = False
) -> AsyncGenerator[IdentityHub]:
    """Run a hub for as long as the block lasts."""
    tokens = directory / "tokens.csv"
    tokens.write_text(STATIC_TOKENS)
    settings = HubSettings(
        directory,
        port=0,
        store="memory",
        token_auth_file=tokens,
        member_cidrs=LOOPBACK,
        accepts_karmada_agents=accepts_karmada_agents,
    )
    async with running_hub(settings) as hub:
        running = IdentityHub(
            hub.url, directory, hub.installation, hub.authority, hub.tls, hub.state
        )
        await running.allow_accounts_to_read_namespaces()
        yield running
