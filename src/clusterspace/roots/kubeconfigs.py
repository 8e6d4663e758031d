"""Kubeconfigs we write: several contexts, one way in, one identity."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.kubeconfig import kubeconfig_files, read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.kube.objects import name_of
from clusterspace.roots.clients import HUB, open_client, read_pem

ADMIN: Final = "admin"
"""The user in kubeconfigs for people."""

FLEET_CONTEXT: Final = "fleet"
"""What the unified view is called in kubeconfigs."""

_LOCAL: Final = (
    Path(".clusterspace") / "kubeconfig",
    Path(".clusterspace") / "fleet" / "kubeconfig",
)


def kubeconfig_of(
    servers: Mapping[str, str], authority: bytes, identity: AuthInfo, *, user: str = ADMIN
) -> bytes:
    """Return a kubeconfig with a context for each server; the first one is the current one.

    An identity that says nothing is left to another file: KUBECONFIG takes several.
    """
    entry = user_entry(identity)
    trust = {"certificate-authority-data": _base64(authority)} if authority else {}
    clusters = [
        {"name": name, "cluster": {"server": server, **trust}} for name, server in servers.items()
    ]
    contexts = [{"name": name, "context": {"cluster": name, "user": user}} for name in servers]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(servers)),
        "clusters": clusters,
        "users": [{"name": user, "user": entry}] if entry else [],
        "contexts": contexts,
    }
    return msgspec.yaml.encode(config)


def user_entry(identity: AuthInfo) -> dict[str, Any]:
    """Return who somebody is as a kubeconfig says it; files stay files when they are renewed."""
    plugin = identity.exec_plugin
    entry = {
        "client-certificate-data": _base64(read_pem(identity.certificate)),
        "client-key-data": _base64(read_pem(identity.key)),
        "token": identity.token,
        "tokenFile": str(identity.token_file.absolute()) if identity.token_file else "",
        "username": identity.username,
        "password": identity.password,
        "exec": plugin
        and {
            "apiVersion": plugin.api_version,
            "command": plugin.command,
            "args": list(plugin.arguments),
            "env": [{"name": name, "value": value} for name, value in plugin.environment],
            "installHint": plugin.install_hint,
            "provideClusterInfo": plugin.wants_cluster,
            "interactiveMode": "IfAvailable",
        },
    }
    return {key: value for key, value in entry.items() if value}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def merged_kubeconfig(contents: list[bytes]) -> bytes:
    """Return one kubeconfig of several; users are named after their server, so that none collide.

    A context whose own file has no users is for those of the first file that has: the gateway says
    where it is, the hub who people are.
    """
    documents: list[dict[str, Any]] = [yaml.safe_load(each) for each in contents]
    with_users = next((each for each in documents if each["users"]), documents[0])
    merged: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": documents[0]["current-context"],
        "clusters": [each for document in documents for each in document["clusters"]],
        "users": [],
        "contexts": [],
    }
    for document in documents:
        server = (document if document["users"] else with_users)["current-context"]
        for each in document["users"]:
            merged["users"].append({**each, "name": f"{server}-{each['name']}"})
        for each in document["contexts"]:
            context = {**each["context"], "user": f"{server}-{each['context']['user']}"}
            merged["contexts"].append({**each, "context": context})
    return msgspec.yaml.encode(merged)


# -- the fleet, the hub and each cluster, all by way of the fleet API server -------------------


def fleet_settings(kubeconfig: Path | None, context: str = "") -> ConnectionSettings:
    """Return how to reach the fleet API server: the file given, else KUBECONFIG, else here."""
    if kubeconfig is not None:
        files: tuple[Path, ...] = (kubeconfig,)
    elif os.environ.get("KUBECONFIG"):
        files = kubeconfig_files(os.environ, Path.home())
    else:
        files = tuple(each for each in _LOCAL if each.exists()) or _LOCAL[:1]
    found = read_kubeconfig(files)
    chosen = context or (FLEET_CONTEXT if FLEET_CONTEXT in found.contexts else "")
    return found.settings(chosen, cluster=FLEET_CONTEXT)


async def all_contexts(settings: ConnectionSettings) -> bytes:
    """Return the kubeconfig; clusters are asked for with the identity it will have."""
    hub = ConnectionSettings(
        cluster=HUB,
        server=_server_of(settings.server, HUB),
        trust=settings.trust,
        identity=settings.identity,
        proxy_url=settings.proxy_url,
    )
    async with open_client(hub) as hub_client:
        clusters = await hub_client.list_objects(ResourcePath(CLUSTERS))
    names = sorted(name_of(each) for each in clusters)
    servers = {name: _server_of(settings.server, name) for name in (HUB, *names)}
    return kubeconfig_of(
        {FLEET_CONTEXT: settings.server, **servers},
        read_pem(settings.trust.authority),
        settings.identity,
    )


def _server_of(fleet: str, cluster: str) -> str:
    return f"{fleet}/clusterspaces/{cluster}"
