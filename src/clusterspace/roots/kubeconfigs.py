"""Kubeconfigs we write: several contexts, one way in, one identity."""

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clusterspace.client.settings import ExecPlugin, Identity
from clusterspace.roots.clients import read_pem

ADMIN: Final = "admin"
"""The user in kubeconfigs for people."""


def kubeconfig_of(
    servers: Mapping[str, str], authority: bytes, identity: Identity, *, user: str = ADMIN
) -> bytes:
    """Return a kubeconfig with a context for each server; the first one is the current one.

    An identity that says nothing is left to another file: KUBECONFIG takes several.
    """
    entry = user_entry(identity)
    clusters = [
        {"name": name, "cluster": {"server": server, **_authority(authority)}}
        for name, server in servers.items()
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


def user_entry(identity: Identity) -> dict[str, Any]:
    """Return who somebody is as a kubeconfig says it; files stay files when they are renewed."""
    entry = {
        "client-certificate-data": _text(read_pem(identity.certificate)),
        "client-key-data": _text(read_pem(identity.key)),
        "token": identity.token,
        "tokenFile": str(identity.token_file.absolute()) if identity.token_file else "",
        "username": identity.username,
        "password": identity.password,
        "exec": _exec_entry(identity.exec_plugin) if identity.exec_plugin else None,
    }
    return {key: value for key, value in entry.items() if value}


def _exec_entry(plugin: ExecPlugin) -> dict[str, Any]:
    return {
        "apiVersion": plugin.api_version,
        "command": plugin.command,
        "args": list(plugin.arguments),
        "env": [{"name": name, "value": value} for name, value in plugin.environment],
        "installHint": plugin.install_hint,
        "provideClusterInfo": plugin.wants_cluster,
        "interactiveMode": "IfAvailable",
    }


def _authority(authority: bytes) -> dict[str, str]:
    return {"certificate-authority-data": _text(authority)} if authority else {}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
