"""Asking a program for credentials, as kubeconfigs may say: never through a shell, never for ever.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from clusterspace.client.settings import ConnectionSettings, ExecPlugin
from clusterspace.errors import CredentialsUnusable, MalformedTimestamp
from clusterspace.kube import timestamps

PLUGIN_SECONDS: Final = 60.0
"""A plug-in may go round by the identity provider, but nobody waits for it much longer."""

_MOST_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What a plug-in printed; without an expiry it is good until it is refused."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    expires_at: float | None = None


class _Status(msgspec.Struct):
    token: str = ""
    clientCertificateData: str = ""  # noqa: N815 - the names of the wire
    clientKeyData: str = ""  # noqa: N815
    expirationTimestamp: str | None = None  # noqa: N815


class _ExecCredential(msgspec.Struct):
    apiVersion: str  # noqa: N815
    kind: str
    status: _Status


async def ask_plugin(
    plugin: ExecPlugin, settings: ConnectionSettings, *, seconds: float = PLUGIN_SECONDS
) -> PluginAnswer:
    """Run the program and read what it prints."""
    printed = await _run(plugin, settings, seconds)
    try:
        return read_exec_credential(printed, plugin.api_version)
    except (ValueError, msgspec.DecodeError, MalformedTimestamp) as error:
        why = f"the plug-in {plugin.command} printed no ExecCredential we can read: {error}"
        raise CredentialsUnusable(settings.cluster, why) from error


def read_exec_credential(printed: bytes, api_version: str) -> PluginAnswer:
    """Read an ExecCredential of this version; a ValueError says what else is wrong with it."""
    credential = msgspec.json.decode(printed, type=_ExecCredential)
    if credential.kind != "ExecCredential" or credential.apiVersion != api_version:
        raise ValueError(f"it is {credential.apiVersion} {credential.kind}, not {api_version}")
    status = credential.status
    if bool(status.clientCertificateData) != bool(status.clientKeyData):
        raise ValueError("a certificate and its key come together or not at all")
    if not status.token and not status.clientCertificateData:
        raise ValueError("there is neither a token nor a certificate in it")
    expiry = status.expirationTimestamp
    return PluginAnswer(
        token=status.token,
        certificate=status.clientCertificateData.encode(),
        key=status.clientKeyData.encode(),
        expires_at=timestamps.parse_time(expiry) if expiry else None,
    )


def exec_info(plugin: ExecPlugin, settings: ConnectionSettings) -> bytes:
    """Return what KUBERNETES_EXEC_INFO tells the program."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.wants_cluster:
        spec["cluster"] = _cluster_info(settings)
    return msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    )


async def _run(plugin: ExecPlugin, settings: ConnectionSettings, seconds: float) -> bytes:
    environment = _environment(plugin, settings)
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        why = f"the plug-in {plugin.command} cannot be started: {error.strerror}{hint}"
        raise CredentialsUnusable(settings.cluster, why) from error
    try:
        async with asyncio.timeout(seconds):
            printed, complaint = await process.communicate()
    except TimeoutError as error:
        why = f"the plug-in {plugin.command} printed nothing within {seconds:g}s"
        raise CredentialsUnusable(settings.cluster, why) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = complaint.decode(errors="replace").strip()[:_MOST_TEXT]
        why = f"the plug-in {plugin.command} failed with {process.returncode}: {said}"
        raise CredentialsUnusable(settings.cluster, why)
    return printed


def _environment(plugin: ExecPlugin, settings: ConnectionSettings) -> Mapping[str, str]:
    info = exec_info(plugin, settings).decode()
    return {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": info}


def _cluster_info(settings: ConnectionSettings) -> dict[str, object]:
    authority = settings.trust.authority
    # Read here and now: plug-ins are asked rarely and the file is a few kilobytes.
    pem = authority.file.read_bytes() if authority.file is not None else authority.data
    info = {
        "server": settings.server,
        "tls-server-name": settings.trust.server_name,
        "insecure-skip-tls-verify": settings.trust.skips_verification,
        "certificate-authority-data": base64.b64encode(pem).decode(),
        "proxy-url": settings.proxy_url,
    }
    return {key: value for key, value in info.items() if value}
