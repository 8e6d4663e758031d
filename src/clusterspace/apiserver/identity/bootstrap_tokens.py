"""Bootstrap tokens: the first credential of a new cluster, kept as Secrets in `kube-system`.

    kind: Secret, type: bootstrap.kubernetes.io/token
    metadata: {name: bootstrap-token-ab12cd, annotations: {clusterspace.io/cluster: west}}
    data: token-id, token-secret, expiration, usage-bootstrap-authentication, auth-extra-groups

Without the annotation this is Kubernetes' own token: it logs in until it expires, and what it may
do is a matter of roles. With it, the token is for one agent certificate of that cluster. It can
keep a digest (`token-digest`) in place of its secret, and once a certificate was issued for it,
it can read the request it made and nothing else. A token past its time is refused at once, and its
Secret removed soon after.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.apis.identities import REGISTRATION_GROUP
from clusterspace.apiserver import forms
from clusterspace.apiserver.housekeeping import remove_expired
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.identity.agents import is_cluster_name
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, Login, RefusedToken
from clusterspace.apiserver.identity.following import encoded, find_object, secret_text
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own
from clusterspace.errors import Conflict, MalformedTimestamp
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"
CLUSTER: Final = "clusterspace.io/cluster"
"""The annotation that makes a token one for the agent of this cluster."""
SPENT_ON: Final = "clusterspace.io/spent-on"
"""The annotation that says which request a token was spent on: its UID and name."""

CLUSTER_TOKEN_SECONDS: Final = 3600
LOOK_SECONDS: Final = 30.0
"""An expired token is refused at once; its Secret need not vanish to the second."""

_NAME_PREFIX: Final = "bootstrap-token-"
_USER_PREFIX: Final = "system:bootstrap:"
_GROUP: Final = "system:bootstrappers"
_REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests/"

_PLAIN_LENGTH: Final = 16
# Kubernetes' tokens have 16 characters behind the dot; ours may have more, for 128 bits and up.
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16,64})")
_GROUP_NAME: Final = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class BootstrapToken:
    """A bootstrap token as its Secret holds it."""

    token_id: str
    groups: tuple[str, ...]
    cluster: str = ""
    secret_uid: str = ""
    spent_on_uid: str = ""
    spent_on: str = ""
    is_karmadas: bool = False
    """Whether Karmada's `register` can work with it: it signs, and registers clusters."""

    @property
    def user(self) -> User:
        """Who logs in with the token."""
        return User(_USER_PREFIX + self.token_id, (_GROUP, *self.groups, AUTHENTICATED))


def secret_name(token_id: str) -> str:
    """Return the name of the Secret that holds a token."""
    return _NAME_PREFIX + token_id


def token_id_of(username: str) -> str:
    """Return the id of the token a user logged in with; empty for everybody else."""
    return username.removeprefix(_USER_PREFIX) if username.startswith(_USER_PREFIX) else ""


def read_token(secret: Object, now: float) -> BootstrapToken:
    """Return the token a Secret holds for logging in; RefusedToken when it holds none now."""
    token_id = secret_text(secret, "token-id")
    if secret.get("type") != TYPE or name_of(secret) != secret_name(token_id):
        raise RefusedToken("the secret does not hold a bootstrap token")
    if is_being_deleted(secret) or has_expired(secret, now):
        raise RefusedToken("the bootstrap token has expired")
    if secret_text(secret, "usage-bootstrap-authentication") != "true":
        raise RefusedToken("the bootstrap token is not for authentication")
    cluster = annotations_of(secret).get(CLUSTER, "")
    if CLUSTER in annotations_of(secret) and not is_cluster_name(cluster):
        raise RefusedToken("the bootstrap token names no cluster")
    groups = [each for each in secret_text(secret, "auth-extra-groups").split(",") if each]
    if not all(_GROUP_NAME.fullmatch(each) for each in groups):
        raise RefusedToken("the bootstrap token has groups it may not have")
    uid, _, name = annotations_of(secret).get(SPENT_ON, "").partition(" ")
    signs = secret_text(secret, "usage-bootstrap-signing") == "true"
    return BootstrapToken(
        token_id,
        tuple(sorted(set(groups))),
        cluster,
        uid_of(secret),
        uid,
        name,
        is_karmadas=signs and REGISTRATION_GROUP in groups,
    )


def has_expired(secret: Object, now: float) -> bool:
    """Whether a token is past its time; one whose time cannot be read is."""
    expiration = secret_text(secret, "expiration")
    if not expiration:
        # A token for a cluster always ends; Kubernetes' own may be without an end.
        return CLUSTER in annotations_of(secret) or bool(find_at(secret, "data", "expiration"))
    try:
        return parse_time(expiration) <= now
    except MalformedTimestamp:
        return True


def matches(secret: Object, given: str) -> bool:
    """Whether what came behind the dot is the token's secret, in a time that tells nothing."""
    digest = secret_text(secret, "token-digest") if CLUSTER in annotations_of(secret) else ""
    # Digests have one length and are compared whole, also when there is nothing to compare with.
    stored = digest or digest_of(secret_text(secret, "token-secret"))
    is_there = bool(digest or secret_text(secret, "token-secret"))
    return hmac.compare_digest(stored.encode(), digest_of(given).encode()) and is_there


def digest_of(secret: str) -> str:
    """Return the digest that is kept of a secret which nobody needs to read again."""
    return hashlib.sha256(secret.encode()).hexdigest()


def cluster_token_secret(
    token: str, cluster: str, now: float, *, seconds: int = CLUSTER_TOKEN_SECONDS
) -> Object:
    """Return the Secret for a new token that lets one cluster's agent in, once."""
    found = _TOKEN.fullmatch(token)
    if found is None or not is_cluster_name(cluster):
        raise ValueError("a cluster token is six characters, a dot, and a secret, for one cluster")
    digest = digest_of(found[2])
    data = {
        "token-id": found[1],
        "token-digest": digest,
        # Tools that list tokens leave out those without a secret. This one lets nobody in.
        "token-secret": digest[:_PLAIN_LENGTH],
        "description": f"for the agent of {cluster}; its secret is not kept, this is no part of it",
        "expiration": format_time(now + seconds),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": REGISTRATION_GROUP,
    }
    metadata = {
        "name": secret_name(found[1]),
        "namespace": NAMESPACE,
        "annotations": {CLUSTER: cluster},
    }
    encoded_data = {key: encoded(value.encode()) for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": TYPE,
        "data": encoded_data,
    }


class BootstrapTokens:
    """Finds out whose bootstrap token it is, and uses tokens up."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def check(self, token: str, audiences: Sequence[str]) -> Login | None:
        """Return whose token it is; a spent one may read the request it was spent on."""
        found = _TOKEN.fullmatch(token)
        if found is None or API_AUDIENCE not in audiences:
            return None
        secret = await find_object(self._hub, "", "secrets", NAMESPACE, secret_name(found[1]))
        # A wrong secret is as unknown as a wrong id: no guess learns which half was right.
        if secret is None or not matches(secret, found[2]):
            return None
        known = read_token(secret, self._hub.clock.now())
        only_path = _REQUESTS + known.spent_on if known.spent_on_uid else ""
        return Login(known.user, (API_AUDIENCE,), only_path)

    async def find(self, token_id: str) -> BootstrapToken | None:
        """Return a token that counts now, by its id; None when there is none."""
        secret = await find_object(self._hub, "", "secrets", NAMESPACE, secret_name(token_id))
        if secret is None:
            return None
        try:
            return read_token(secret, self._hub.clock.now())
        except RefusedToken:
            return None

    async def spend(self, token: BootstrapToken, request: Object) -> bool:
        """Use a token up on a certificate request; False when another request was quicker.

        The annotation is written before the request is approved: a crash in between leaves a
        token that is spent on this very request, which is then found approvable again, and one
        that was approved without having spent its token never exists.
        """
        spent_on = f"{uid_of(request)} {name_of(request)}"

        def spent(secret: Object) -> Object:
            # Called again with what is stored now whenever somebody else wrote in between, so of
            # two requests that came at the same moment one finds the other's annotation.
            if uid_of(secret) != token.secret_uid:
                raise Conflict("the bootstrap token was replaced")
            annotations = annotations_of(secret)
            if SPENT_ON in annotations:
                return secret
            return with_metadata(secret, annotations={**annotations, SPENT_ON: spent_on})

        served = self._hub.catalog.get_storage("", "secrets")
        key = served.key(NAMESPACE, secret_name(token.token_id))
        entry = await edit_own(self._hub, served, key, spent)
        if entry is None:
            return False
        return annotations_of(forms.decode_stored(entry, served.form)).get(SPENT_ON) == spent_on


async def expire_tokens(hub: HubState) -> None:
    """Look at every bootstrap token now and then, until cancelled."""
    while True:
        await forget_expired_tokens(hub)
        await hub.clock.sleep(LOOK_SECONDS)


async def forget_expired_tokens(hub: HubState) -> int:
    """Remove the tokens that have expired; return how many went."""
    now = hub.clock.now()
    removed = await remove_expired(
        hub,
        "",
        "secrets",
        lambda secret: secret.get("type") == TYPE and has_expired(secret, now),
        namespace=NAMESPACE,
    )
    for key in removed:
        _log.info("expired bootstrap token removed", secret=key)
    return len(removed)
