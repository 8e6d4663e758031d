"""Secrets of type `kubernetes.io/service-account-token`: filled in, and removed with their account.

The Secret names its account in an annotation; Karmada's join waits for the token to appear.
"""

import enum
from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.reading import (
    encoded,
    find_object,
    is_being_deleted,
    list_objects,
    secret_value,
)
from clusterspace.apiserver.identity.service_account_tokens import Reference, ServiceAccountTokens
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own, remove, write_of
from clusterspace.errors import Conflict, NotFound
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)

_log = structlog.get_logger(__name__)

TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
MANAGER: Final = "kube-controller-manager"
"""Kubernetes' own name for whoever does this, which people know from `managedFields`."""


class Plan(enum.Enum):
    """What a token Secret needs."""

    NOTHING = "nothing"
    FILL = "fill"
    REMOVE = "remove"


def plan_secret(secret: Object, account: Object | None, authority: bytes) -> Plan:
    """Decide about a Secret, given the account it names as it is now."""
    if secret.get("type") != TYPE or is_being_deleted(secret):
        return Plan.NOTHING
    uid = annotations_of(secret).get(ACCOUNT_UID)
    if account is None or (uid and uid != uid_of(account)):
        return Plan.REMOVE
    wanted = {"ca.crt": authority, "namespace": namespace_of(secret).encode()}
    is_filled = uid and secret_value(secret, "token")
    is_current = all(secret_value(secret, key) == value for key, value in wanted.items())
    return Plan.NOTHING if is_filled and is_current else Plan.FILL


class TokenSecrets:
    """Follows Secrets and service accounts, and keeps the ones in step with the others."""

    def __init__(self, hub: HubState, tokens: ServiceAccountTokens, authority: bytes) -> None:
        self._hub = hub
        self._tokens = tokens
        self._authority = authority
        self._secrets = hub.catalog.get_storage("", "secrets")
        self._accounts = hub.catalog.get_storage("", "serviceaccounts")

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (self._secrets.prefix(), self._accounts.prefix()), self._look)

    async def _look(self, key: str) -> None:
        namespace, name = key.rsplit("/", 2)[1:]
        if key.startswith(self._secrets.prefix()):
            await self.look_at_secret(namespace, name)
            return
        for secret in await list_objects(self._hub, "", "secrets", namespace):
            if annotations_of(secret).get(ACCOUNT_NAME) == name:
                await self.look_at_secret(namespace, name_of(secret))

    async def look_at_secret(self, namespace: str, name: str) -> None:
        """Fill or remove one Secret, as it and its account are now."""
        secret = await find_object(self._hub, "", "secrets", namespace, name)
        if secret is None or secret.get("type") != TYPE:
            return
        wanted = annotations_of(secret).get(ACCOUNT_NAME, "")
        account = await find_object(self._hub, "", "serviceaccounts", namespace, wanted)
        match plan_secret(secret, account, self._authority):
            case Plan.FILL:
                await self._fill(secret, cast("Object", account))
            case Plan.REMOVE:
                await self._remove(secret)
            case Plan.NOTHING:
                return

    async def _fill(self, seen: Object, account: Object) -> None:
        namespace, name, uid = namespace_of(seen), name_of(seen), uid_of(seen)
        reference = Reference(name_of(account), uid_of(account))
        token = self._tokens.issue_for_secret(namespace, reference, name)

        def filled(secret: Object) -> Object:
            if uid_of(secret) != uid:
                return secret
            held = cast("Object", secret.get("data") or {})
            data = {
                **held,
                "ca.crt": encoded(self._authority),
                "namespace": encoded(namespace.encode()),
                "token": held.get("token") or encoded(token.encode()),
            }
            annotations = {**annotations_of(secret), ACCOUNT_UID: reference.uid}
            return with_metadata({**secret, "data": data}, annotations=annotations)

        write = write_of(self._hub, self._secrets, manager=MANAGER)
        key = forms.object_key("", "secrets", namespace, name)
        await edit_own(self._hub, self._secrets, key, filled, write=write)

    async def _remove(self, seen: Object) -> None:
        key = forms.object_key("", "secrets", namespace_of(seen), name_of(seen))
        options = DeleteOptions(uid=uid_of(seen), resource_version=resource_version_of(seen))
        try:
            await remove(self._hub, self._secrets, key, options)
        except (NotFound, Conflict):
            return  # it changed meanwhile: its own event brings us back
        _log.info("token secret without account removed", secret=key)
