"""The ConfigMaps in which others read how to reach us, and whose certificates count.

`kube-public/cluster-info` is what a newcomer reads before it knows whom to trust. Beside the
kubeconfig lies, for every bootstrap token that allows it, a signature made with the token's secret:
whoever knows the secret can tell that the kubeconfig comes from somebody who knows it too.

`kube-system/extension-apiserver-authentication` says whose client certificates count here. Other
API servers of the installation read it, as they do with a kube-apiserver, and so know the same
people.

`kube-system/kube-apiserver-legacy-service-account-token-tracking` says since when the use of tokens
from Secrets is recorded here. Controllers that clean up unused ones wait for it.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from clusterspace.apiserver.identity import bootstrap_tokens
from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.identity.following import (
    edit_config_map,
    follow,
    list_objects,
    secret_text,
)
from clusterspace.apiserver.state import HubState
from clusterspace.kube.objects import Object, is_being_deleted
from clusterspace.kube.times import format_time

_INFO: Final = ("kube-public", "cluster-info")
_KUBECONFIG: Final = "kubeconfig"
_SIGNATURE: Final = "jws-kubeconfig-"

_AUTHENTICATION: Final = ("kube-system", "extension-apiserver-authentication")
_CLIENT_AUTHORITY: Final = "client-ca-file"

_TRACKING: Final = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
_SINCE: Final = "since"
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


def kubeconfig_of(server: str, authority: bytes) -> str:
    """Return a kubeconfig that says where we are and who vouches for us, and logs nobody in."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
        "contexts": None,
        "current-context": "",
        "preferences": {},
        "users": None,
    }
    return msgspec.yaml.encode(config).decode()


def sign(content: str, token_id: str, secret: str) -> str:
    """Return a JWS of the content with the content left out, as kubeadm compares it: by letter."""
    header = _base64url(b'{"alg":"HS256","kid":"%s"}' % token_id.encode())
    signed = f"{header}.{_base64url(content.encode())}"
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{header}..{_base64url(signature)}"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signatures(kubeconfig: str, secrets: Iterable[Object], now: float) -> dict[str, str]:
    """Return the signatures that belong beside a kubeconfig, by key."""
    signed: dict[str, str] = {}
    for secret in secrets:
        token_id, token = secret_text(secret, "token-id"), secret_text(secret, "token-secret")
        may_sign = (
            secret.get("type") == bootstrap_tokens.TYPE
            and not is_being_deleted(secret)
            and secret_text(secret, "usage-bootstrap-signing") == "true"
            and not bootstrap_tokens.has_expired(secret, now)
        )
        if may_sign and token_id and token:
            signed[_SIGNATURE + token_id] = sign(kubeconfig, token_id, token)
    return signed


class ClusterInfo:
    """Keeps `cluster-info` there, right and signed."""

    def __init__(self, hub: HubState, server: str, trust: TrustBundle) -> None:
        self._hub = hub
        self._server = server
        self._trust = trust

    async def run(self) -> None:
        """Work until cancelled."""
        await self.publish()
        info = self._hub.catalog.get_storage("", "configmaps").key(*_INFO)
        secrets = self._hub.catalog.get_storage("", "secrets").prefix(bootstrap_tokens.NAMESPACE)

        async def look(key: str) -> None:
            if key == info or key.startswith(secrets + "bootstrap-token-"):
                await self.publish()

        await follow(self._hub, (info, secrets), look, self._trust)

    async def publish(self) -> None:
        """Write the kubeconfig and its signatures, if anything of it differs."""
        secrets = await list_objects(self._hub, "", "secrets", bootstrap_tokens.NAMESPACE)
        kubeconfig = kubeconfig_of(self._server, self._trust.pem)
        signed = signatures(kubeconfig, secrets, self._hub.clock.now())

        def published(data: dict[str, str]) -> dict[str, str]:
            kept = {k: v for k, v in data.items() if not k.startswith(_SIGNATURE)}
            return {**kept, _KUBECONFIG: kubeconfig, **signed}

        await edit_config_map(self._hub, *_INFO, published)


class ClientAuthority:
    """Keeps `extension-apiserver-authentication` there and right; what others add there stays."""

    def __init__(self, hub: HubState, trust: TrustBundle) -> None:
        self._hub = hub
        self._trust = trust

    async def run(self) -> None:
        """Work until cancelled."""
        await _keep(self._hub, _AUTHENTICATION, self.publish, self._trust)

    async def publish(self) -> None:
        """Write our authorities, if anything else is there."""
        own = {_CLIENT_AUTHORITY: self._trust.pem.decode()}
        await edit_config_map(self._hub, *_AUTHENTICATION, lambda data: {**data, **own})


class TokenTracking:
    """Keeps the day there since which `ServiceAccountTokens` records the use of tokens."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        await _keep(self._hub, _TRACKING, self.publish)

    async def publish(self) -> None:
        """Write today's date, unless a day that can be read and has come is there already.

        A day too early would make tokens look unused that are in use, so one that somebody deleted
        does not come back: it begins anew.
        """
        today = format_time(self._hub.clock.now())[: len("2006-01-02")]

        def since(data: dict[str, str]) -> dict[str, str]:
            known = data.get(_SINCE, "")
            is_past = _DAY.fullmatch(known) is not None and known <= today
            return {_SINCE: known if is_past else today}

        await edit_config_map(self._hub, *_TRACKING, since)


async def _keep(
    hub: HubState,
    place: tuple[str, str],
    publish: Callable[[], Awaitable[None]],
    trust: TrustBundle | None = None,
) -> None:
    """Publish a ConfigMap now and whenever it changes, until cancelled."""
    key = hub.catalog.get_storage("", "configmaps").key(*place)

    async def look(changed: str) -> None:
        if changed == key:  # names that begin with this one are followed too
            await publish()

    await publish()
    await follow(hub, (key,), look, trust)
