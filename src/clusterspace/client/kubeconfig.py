"""Kubeconfig files, or a pod's own files, to connection settings.

Several files count as one: of entries with the same name the first wins, and so does the first
`current-context`. Paths in a file are relative to that file.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from clusterspace.client.settings import (
    DEFAULT_NAMESPACE,
    AuthInfo,
    ConnectionSettings,
    ExecPlugin,
    Impersonation,
    Pem,
    Trust,
)
from clusterspace.errors import KubeconfigMissing, UnusableKubeconfig

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS: Final = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One named cluster, user or context, and the file it stands in."""

    place: str
    directory: Path | None
    """Where its paths start; None when it must not name files or programs at all."""
    fields: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text, or an empty one."""
        value = self.fields.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        raise UnusableKubeconfig(f"{key} must be a text", place=self.place)

    def flag(self, key: str) -> bool:
        """Return a yes or no; no when it is missing."""
        value = self.fields.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise UnusableKubeconfig(f"{key} must be true or false", place=self.place)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, or none."""
        values = self.values(key)
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) != len(values):
            raise UnusableKubeconfig(f"{key} must be a list of texts", place=self.place)
        return texts

    def values(self, key: str) -> list[object]:
        """Return a list of anything, or none."""
        values = self.fields.get(key)
        if values is None or isinstance(values, list):
            return cast("list[object]", values or [])
        raise UnusableKubeconfig(f"{key} must be a list", place=self.place)

    def file(self, key: str) -> Path | None:
        """Return the file a field names, or None."""
        text = self.text(key)
        if not text:
            return None
        if self.directory is None:
            why = f"{key} names a file, which this kubeconfig may not: put the data in it"
            raise UnusableKubeconfig(why, place=self.place)
        return self.directory / Path(text).expanduser()

    def pem(self, key: str) -> Pem:
        """Return the PEM in `key`-data, else the file that `key` names."""
        encoded = self.text(f"{key}-data")
        if not encoded:
            return Pem(file=self.file(key))
        try:
            return Pem(data=base64.b64decode(encoded, validate=True))
        except binascii.Error as error:
            why = f"{key}-data is not base64"
            raise UnusableKubeconfig(why, place=self.place) from error


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One kubeconfig file, or several merged."""

    place: str
    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]
    contexts: Mapping[str, Entry]
    current_context: str

    def settings(self, context: str = "", *, cluster: str = "") -> ConnectionSettings:
        """Return how a context, the current one by default, reaches its cluster.

        `cluster` is what we call it; the context's name unless told.
        """
        chosen = context or self.current_context
        if not chosen:
            why = "no context is named and there is no current-context"
            raise UnusableKubeconfig(why, place=self.place)
        entry = self._find("context", self.contexts, chosen)
        target = self._find("cluster", self.clusters, entry.text("cluster"))
        authority = target.pem("certificate-authority")
        skips = target.flag("insecure-skip-tls-verify")
        if authority and skips:
            why = "insecure-skip-tls-verify and a certificate-authority contradict each other"
            raise UnusableKubeconfig(why, place=target.place)
        user = entry.text("user")
        return ConnectionSettings(
            cluster=cluster or chosen,
            server=target.text("server").rstrip("/"),
            trust=Trust(authority, target.text("tls-server-name"), skips),
            identity=_auth_info_of(self._find("user", self.users, user)) if user else AuthInfo(),
            proxy_url=target.text("proxy-url"),
            namespace=entry.text("namespace") or DEFAULT_NAMESPACE,
            compresses=not target.flag("disable-compression"),
        )

    def _find(self, what: str, entries: Mapping[str, Entry], name: str) -> Entry:
        if name not in entries:
            raise UnusableKubeconfig(f"there is no {what} named {name!r}", place=self.place)
        return entries[name]


def kubeconfig_files(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Return the files KUBECONFIG names, else the one in the home directory."""
    named = tuple(
        Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each
    )
    return named or (home / ".kube" / "config",)


def read_kubeconfig(files: Sequence[Path]) -> Kubeconfig:
    """Read files that together are one kubeconfig; those that do not exist are passed over."""
    read = [
        parse_kubeconfig(file.read_bytes(), place=str(file), directory=file.absolute().parent)
        for file in files
        if file.exists()
    ]
    if not read:
        named = ", ".join(str(file) for file in files)
        raise KubeconfigMissing("there is no such file", place=named or "kubeconfig")
    return merge_kubeconfigs(read)


def parse_kubeconfig(content: bytes, *, place: str, directory: Path | None = None) -> Kubeconfig:
    """Read one kubeconfig.

    Without a directory it came from somebody else, in a Secret for instance, and must not make
    us read our files or run programs.
    """
    try:
        document = msgspec.yaml.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusableKubeconfig("this is not YAML", place=place) from error
    top = Entry(place, directory, _as_fields(document, place))
    return Kubeconfig(
        place=place,
        clusters=_named(top, "clusters", "cluster"),
        users=_named(top, "users", "user"),
        contexts=_named(top, "contexts", "context"),
        current_context=top.text("current-context"),
    )


def merge_kubeconfigs(several: Sequence[Kubeconfig]) -> Kubeconfig:
    """Return several kubeconfigs merged into one; the first to set a value wins."""
    latest_first = several[::-1]
    current = (each.current_context for each in several if each.current_context)
    return Kubeconfig(
        place=", ".join(each.place for each in several),
        clusters={name: entry for each in latest_first for name, entry in each.clusters.items()},
        users={name: entry for each in latest_first for name, entry in each.users.items()},
        contexts={name: entry for each in latest_first for name, entry in each.contexts.items()},
        current_context=next(current, ""),
    )


def in_cluster_settings(
    environment: Mapping[str, str], *, cluster: str, files: Path = _SERVICE_ACCOUNT
) -> ConnectionSettings:
    """Return how a pod reaches the cluster it runs in, as its service account."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        why = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        raise UnusableKubeconfig(f"this is not a pod: {why}", place="in-cluster")
    if not (files / "token").exists():
        raise UnusableKubeconfig("the pod has no service account token", place=str(files))
    namespace = files / "namespace"
    return ConnectionSettings(
        cluster=cluster,
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        trust=Trust(authority=Pem(file=files / "ca.crt")),
        identity=AuthInfo(token_file=files / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else DEFAULT_NAMESPACE,
    )


def _auth_info_of(user: Entry) -> AuthInfo:
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(key):
        why = "client-certificate and client-key come together or not at all"
        raise UnusableKubeconfig(why, place=user.place)
    if "auth-provider" in user.fields:
        why = "auth-provider was taken out of Kubernetes; use an exec plug-in"
        raise UnusableKubeconfig(why, place=user.place)
    extra = Entry(user.place, None, _as_fields(user.fields.get("as-user-extra"), user.place))
    impersonation = Impersonation(
        user=user.text("as"),
        uid=user.text("as-uid"),
        groups=user.texts("as-groups"),
        extra=tuple((key, value) for key in extra.fields for value in extra.texts(key)),
    )
    return AuthInfo(
        token=user.text("token"),
        token_file=user.file("tokenFile"),
        certificate=certificate,
        key=key,
        username=user.text("username"),
        password=user.text("password"),
        exec_plugin=_exec_of(user),
        impersonation=impersonation,
    )


def _exec_of(user: Entry) -> ExecPlugin | None:
    if user.fields.get("exec") is None:
        return None
    place = f"{user.place} exec"
    if user.directory is None:
        raise UnusableKubeconfig("this kubeconfig may not run programs", place=place)
    plugin = Entry(place, user.directory, _as_fields(user.fields["exec"], place))
    if plugin.text("apiVersion") not in _EXEC_VERSIONS:
        raise UnusableKubeconfig(f"apiVersion must be {_EXEC_VERSIONS[0]}", place=place)
    if plugin.text("interactiveMode") == "Always":
        why = "interactiveMode is Always, and there is nobody to ask"
        raise UnusableKubeconfig(why, place=place)
    if not plugin.text("command"):
        raise UnusableKubeconfig("command is missing", place=place)
    command = plugin.text("command")
    if os.sep in command:
        # A path is relative to the file it stands in; a bare name is looked up in PATH.
        command = str(user.directory / Path(command).expanduser())
    variables = [Entry(place, None, _as_fields(pair, place)) for pair in plugin.values("env")]
    return ExecPlugin(
        api_version=plugin.text("apiVersion"),
        command=command,
        arguments=plugin.texts("args"),
        environment=tuple((each.text("name"), each.text("value")) for each in variables),
        install_hint=plugin.text("installHint"),
        wants_cluster=plugin.flag("provideClusterInfo"),
    )


def _named(top: Entry, key: str, inner: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for each in top.values(key):
        outer = Entry(f"{top.place}: {key}", None, _as_fields(each, f"{top.place}: {key}"))
        name = outer.text("name")
        place = f"{top.place}: {inner} {name!r}"
        fields = _as_fields(outer.fields.get(inner), place)
        found.setdefault(name, Entry(place, top.directory, fields))
    return found


def _as_fields(value: object, place: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnusableKubeconfig("fields were expected here", place=place)
    return cast("dict[str, Any]", value)
