"""`kube-public/cluster-info`: how to reach us, signed for whoever holds a bootstrap token.

A newcomer reads it before it knows whom to trust. Beside the kubeconfig lies, for every token that
allows it, a signature made with the token's secret: whoever knows the secret can tell that the
kubeconfig comes from somebody who knows it too.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, cast

import msgspec

from clusterspace.apiserver.identity.bootstrap_tokens import NAMESPACE as TOKENS
from clusterspace.apiserver.identity.bootstrap_tokens import TYPE, has_expired
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.reading import is_being_deleted, list_objects, secret_text
from clusterspace.apiserver.identity.token_secrets import MANAGER
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists
from clusterspace.kube.objects import Object

NAMESPACE: Final = "kube-public"
NAME: Final = "cluster-info"
_KUBECONFIG: Final = "kubeconfig"
_SIGNATURE: Final = "jws-kubeconfig-"


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
    signing = (each for each in secrets if _may_sign(each, now))
    pairs = ((secret_text(s, "token-id"), secret_text(s, "token-secret")) for s in signing)
    return {_SIGNATURE + token_id: sign(kubeconfig, token_id, held) for token_id, held in pairs}


def _may_sign(secret: Object, now: float) -> bool:
    return (
        secret.get("type") == TYPE
        and not is_being_deleted(secret)
        and secret_text(secret, "usage-bootstrap-signing") == "true"
        and bool(secret_text(secret, "token-id") and secret_text(secret, "token-secret"))
        and not has_expired(secret, now)
    )


class ClusterInfo:
    """Keeps the ConfigMap there, right and signed."""

    def __init__(self, hub: HubState, server: str, authority: bytes) -> None:
        self._hub = hub
        self._kubeconfig = kubeconfig_of(server, authority)
        self._maps = hub.catalog.get_storage("", "configmaps")
        self._secrets = hub.catalog.get_storage("", "secrets")

    async def run(self) -> None:
        """Work until cancelled."""
        await self.publish()
        prefixes = (self._maps.prefix(NAMESPACE), self._secrets.prefix(TOKENS))
        await follow(self._hub, prefixes, self._look)

    async def _look(self, key: str) -> None:
        if key == self._key or key.startswith(self._secrets.prefix(TOKENS) + "bootstrap-token-"):
            await self.publish()

    @property
    def _key(self) -> str:
        return self._maps.key(NAMESPACE, NAME)

    async def publish(self) -> None:
        """Write the kubeconfig and its signatures, if anything of it differs."""
        secrets = await list_objects(self._hub, "", "secrets", TOKENS)
        signed = signatures(self._kubeconfig, secrets, self._hub.clock.now())

        def published(held: Object) -> Object:
            there = cast("dict[str, str]", held.get("data") or {})
            kept = {k: v for k, v in there.items() if not k.startswith(_SIGNATURE)}
            return {**held, "data": {**kept, _KUBECONFIG: self._kubeconfig, **signed}}

        write = write_of(self._hub, self._maps, manager=MANAGER)
        entry = await edit_own(self._hub, self._maps, self._key, published, write=write)
        if entry is None:
            await self._create(published({}))

    async def _create(self, wanted: Object) -> None:
        metadata = {"name": NAME, "namespace": NAMESPACE}
        whole: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **wanted}
        try:
            await create_own(self._hub, self._maps, whole, MANAGER)
        except AlreadyExists:
            await self.publish()
