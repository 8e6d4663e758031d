"""How the controllers here follow, read and write the store.

    follow           keys that changed, handed to a look, one at a time
    find_object, …   one object, or a list of them, as it is now
    secret_value, …  what a Secret has under a key
    edit_config_map  a ConfigMap changed, or made

A key says only where to look. The look reads what is there now and decides from that, so a key
seen twice, or after its object has changed again, does no harm.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists, ApiError, StoreError
from clusterspace.kube.objects import Object, find_at

_log = structlog.get_logger(__name__)

MANAGER: Final = "kube-controller-manager"
"""Kubernetes' own name for whoever does this, which people know from `managedFields`."""

RETRY_SECONDS: Final = 1.0
"""How long a look that failed waits for the next one."""

Look: TypeAlias = Callable[[str], Awaitable[None]]
"""Looks at what is now behind a key and does what has to be done about it."""


class _Changes:
    """A sink that remembers which keys changed: a set, so it is bounded by the keys there are."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._woken = asyncio.Event()
        self.ended_by: StoreError | None = None
        self.is_over = False

    def receive(self, events: tuple[Event, ...]) -> None:
        self.add(event.key for event in events)

    def end(self, reason: StoreError) -> None:
        self.ended_by = reason
        self.begin_again()

    def add(self, keys: Iterable[str]) -> None:
        self._keys.update(keys)
        self._woken.set()

    def begin_again(self) -> None:
        """Have everything listed and looked at once more."""
        self.is_over = True
        self._woken.set()

    async def take(self) -> list[str]:
        """Wait for changes and return their keys, in order."""
        await self._woken.wait()
        # No await from here on: what the store adds comes after, and wakes us again.
        self._woken.clear()
        taken, self._keys = sorted(self._keys), set()
        return taken


async def follow(
    hub: HubState, prefixes: Sequence[str], look: Look, trust: TrustBundle | None = None
) -> None:
    """Look at every key under the prefixes, then at those that change, until cancelled.

    When the trusted authorities change, what publishes them looks at everything again.
    """
    store = hub.store
    while True:
        changes = _Changes()
        # Subscribed before it is listed: what changes in between is looked at twice, not never.
        after = store.current_revision
        subscriptions = [store.subscribe(each, after=after, sink=changes) for each in prefixes]
        forget = None if trust is None else trust.on_change(changes.begin_again)
        try:
            for prefix in prefixes:
                page = await store.range(prefix)
                changes.add(entry.key for entry in page.items)
            while not changes.is_over:
                failed: list[str] = []
                for key in await changes.take():
                    try:
                        await look(key)
                    except (ApiError, StoreError) as error:
                        _log.warning("look failed and is repeated", key=key, reason=str(error))
                        failed.append(key)
                if failed:
                    # One key that keeps failing slows the others down; it never stops them.
                    await hub.clock.sleep(RETRY_SECONDS)
                    changes.add(failed)
        finally:
            if forget is not None:
                forget()
            for subscription in subscriptions:
                subscription.close()
        if changes.ended_by is None:
            continue
        _log.warning("objects are listed again", reason=str(changes.ended_by))
        await hub.clock.sleep(RETRY_SECONDS)


async def find_object(
    hub: HubState, group: str, plural: str, namespace: str, name: str
) -> Object | None:
    """Return an object as it is now; None when it is not there or its kind is not served."""
    try:
        served = hub.catalog.get_storage(group, plural)
    except KeyError:
        return None
    entry = await hub.store.get(served.key(namespace, name))
    return None if entry is None else forms.decode_stored(entry, served.form)


async def list_objects(hub: HubState, group: str, plural: str, namespace: str = "") -> list[Object]:
    """Return every object of a resource, or those in one namespace."""
    served = hub.catalog.get_storage(group, plural)
    page = await hub.store.range(served.prefix(namespace))
    return [forms.decode_stored(entry, served.form) for entry in page.items]


def secret_value(secret: Object, key: str) -> bytes:
    """Return the value a Secret has under a key; empty when there is none that can be read."""
    encoded: Any = find_at(secret, "data", key)
    if not isinstance(encoded, str):
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return b""


def secret_text(secret: Object, key: str) -> str:
    """Return the value a Secret has under a key, as text; empty when it is not text."""
    try:
        return secret_value(secret, key).decode()
    except UnicodeDecodeError:
        return ""


def encoded(value: bytes) -> str:
    """Return a value as a Secret's `data` holds it."""
    return base64.b64encode(value).decode()


async def edit_config_map(
    hub: HubState,
    namespace: str,
    name: str,
    edit: Callable[[dict[str, str]], dict[str, str]],
    *,
    is_owned: bool = True,
) -> None:
    """Change the data of a ConfigMap, which is made when it is not there.

    When it is `is_owned`, the fields that change become our manager's.
    """
    maps = hub.catalog.get_storage("", "configmaps")

    def edited(existing: Object) -> Object:
        return {**existing, "data": edit(existing.get("data") or {})}

    while True:
        write = write_of(hub, maps, manager=MANAGER) if is_owned else None
        if await edit_own(hub, maps, maps.key(namespace, name), edited, write=write) is not None:
            return
        metadata = {"name": name, "namespace": namespace}
        empty: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        try:
            await create_own(hub, maps, edited(empty), MANAGER)
        except AlreadyExists:
            continue  # somebody was quicker, and what they made is changed like any other
        return
