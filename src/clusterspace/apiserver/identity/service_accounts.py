"""Service accounts: what every namespace has, and the Secrets that hold a token of one.

Every namespace gets the account `default`, and our authority in `kube-root-ca.crt`, as soon as it
is there: whoever makes a namespace to run something in waits for both.

Secrets of type `kubernetes.io/service-account-token` name their account in an annotation. They are
filled in, and removed with the account; Karmada's join waits for the token to appear.
"""

import enum
from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.identity.following import (
    MANAGER,
    encoded,
    find_object,
    follow,
    list_objects,
    secret_value,
)
from clusterspace.apiserver.identity.service_account_tokens import Reference, ServiceAccountTokens
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import (
    as_controller,
    create_own,
    edit_own,
    remove,
    write_of,
)
from clusterspace.errors import AlreadyExists, Conflict, NotFound
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)

_log = structlog.get_logger(__name__)

_AUTHOR: Final = as_controller("tokens-controller")

ACCOUNT: Final = "default"
AUTHORITY: Final = "kube-root-ca.crt"
_KEY: Final = "ca.crt"
_DESCRIPTION: Final = "kubernetes.io/description"
_ABOUT: Final = "The certificate authority of the API server that serves this namespace."

TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"


class NamespaceAccounts:
    """Follows namespaces, and puts back what somebody deletes."""

    def __init__(self, hub: HubState, trust: TrustBundle) -> None:
        self._hub = hub
        self._trust = trust
        self._namespaces = hub.catalog.get_storage("", "namespaces")
        self._accounts = hub.catalog.get_storage("", "serviceaccounts")
        self._maps = hub.catalog.get_storage("", "configmaps")

    async def run(self) -> None:
        """Work until cancelled."""
        followed = (self._namespaces, self._accounts, self._maps)
        prefixes = [each.prefix() for each in followed]
        await follow(self._hub, prefixes, self._look, self._trust)

    async def _look(self, key: str) -> None:
        if key.startswith(self._namespaces.prefix()):
            await self.complete(forms.name_in(key))
        elif forms.name_in(key) in (ACCOUNT, AUTHORITY):
            await self.complete(key.rsplit("/", 2)[1])

    async def complete(self, namespace: str) -> None:
        """Make what a namespace lacks, unless it is ending."""
        found = await find_object(self._hub, "", "namespaces", "", namespace)
        if found is None or is_being_deleted(found):
            return
        data = {_KEY: self._trust.pem.decode()}
        account: Object = {"apiVersion": "v1", "kind": "ServiceAccount"}
        await self._make(self._accounts, account, namespace, ACCOUNT)
        authority: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"annotations": {_DESCRIPTION: _ABOUT}},
            "data": data,
        }
        await self._make(self._maps, authority, namespace, AUTHORITY)

        def corrected(existing: Object) -> Object:
            return existing if find_at(existing, "data") == data else {**existing, "data": data}

        write = write_of(self._hub, self._maps, manager=MANAGER)
        key = self._maps.key(namespace, AUTHORITY)
        await edit_own(self._hub, self._maps, key, corrected, write=write)

    async def _make(self, served: Served, desired: Object, namespace: str, name: str) -> None:
        if await self._hub.store.get(served.key(namespace, name)) is not None:
            return
        metadata = {**desired.get("metadata", {}), "name": name, "namespace": namespace}
        try:
            await create_own(self._hub, served, {**desired, "metadata": metadata}, MANAGER)
        except AlreadyExists:
            return


class TokenSecretPlan(enum.Enum):
    """The action a token Secret needs."""

    NOTHING = "nothing"
    FILL = "fill"
    REMOVE = "remove"


def plan_secret(secret: Object, account: Object | None, authority: bytes) -> TokenSecretPlan:
    """Decide about a Secret, given the account it names as it is now."""
    if secret.get("type") != TYPE or is_being_deleted(secret):
        return TokenSecretPlan.NOTHING
    uid = annotations_of(secret).get(ACCOUNT_UID)
    if account is None or (uid and uid != uid_of(account)):
        return TokenSecretPlan.REMOVE
    desired = {"ca.crt": authority, "namespace": namespace_of(secret).encode()}
    is_filled = uid and secret_value(secret, "token")
    is_current = all(secret_value(secret, key) == value for key, value in desired.items())
    return TokenSecretPlan.NOTHING if is_filled and is_current else TokenSecretPlan.FILL


class TokenSecrets:
    """Follows Secrets and service accounts, and keeps the ones in step with the others."""

    def __init__(self, hub: HubState, tokens: ServiceAccountTokens, trust: TrustBundle) -> None:
        self._hub = hub
        self._tokens = tokens
        self._trust = trust
        self._secrets = hub.catalog.get_storage("", "secrets")
        self._accounts = hub.catalog.get_storage("", "serviceaccounts")

    async def run(self) -> None:
        """Work until cancelled."""
        prefixes = (self._secrets.prefix(), self._accounts.prefix())
        await follow(self._hub, prefixes, self._look, self._trust)

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
        account_name = annotations_of(secret).get(ACCOUNT_NAME, "")
        account = await find_object(self._hub, "", "serviceaccounts", namespace, account_name)
        match plan_secret(secret, account, self._trust.pem):
            case TokenSecretPlan.FILL:
                await self._fill(secret, cast("Object", account))
            case TokenSecretPlan.REMOVE:
                key = forms.object_key("", "secrets", namespace, name)
                # By UID and version: an account that was made again has its Secrets made again.
                options = DeleteOptions(
                    uid=uid_of(secret), resource_version=resource_version_of(secret)
                )
                try:
                    await remove(self._hub, self._secrets, key, options, _AUTHOR)
                except (NotFound, Conflict):
                    return  # it changed meanwhile: its own event brings us back
                _log.info("token secret without account removed", secret=key)
            case TokenSecretPlan.NOTHING:
                return

    async def _fill(self, seen: Object, account: Object) -> None:
        namespace, name = namespace_of(seen), name_of(seen)
        reference = Reference(name_of(account), uid_of(account))
        # Signed before it is known whether it is needed. One that is not stored counts for nothing:
        # a token of this kind is good only while it lies in the Secret it names.
        token = self._tokens.issue_for_secret(namespace, reference, name)

        def filled(secret: Object) -> Object:
            if uid_of(secret) != uid_of(seen):
                return secret  # another one took the name, and may be for another account
            existing = cast("Object", secret.get("data") or {})
            data = {
                **existing,
                "ca.crt": encoded(self._trust.pem),
                "namespace": encoded(namespace.encode()),
                "token": existing.get("token") or encoded(token.encode()),
            }
            annotations = {**annotations_of(secret), ACCOUNT_UID: reference.uid}
            return with_metadata({**secret, "data": data}, annotations=annotations)

        write = write_of(self._hub, self._secrets, manager=MANAGER)
        key = forms.object_key("", "secrets", namespace, name)
        await edit_own(self._hub, self._secrets, key, filled, write=write)
