"""One object read from the store, decoded; and the parts of Secrets."""

import base64
import binascii
from typing import Any

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import HubState
from clusterspace.kube.objects import Object, find_at


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


def is_being_deleted(kube_object: Object) -> bool:
    """Whether the object is marked for deletion."""
    return bool(find_at(kube_object, "metadata", "deletionTimestamp"))


def secret_value(secret: Object, key: str) -> bytes:
    """Return what a Secret holds under a key; empty when it holds nothing readable there."""
    encoded: Any = find_at(secret, "data", key)
    if not isinstance(encoded, str):
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return b""


def secret_text(secret: Object, key: str) -> str:
    """Return what a Secret holds under a key, as text; empty when it is not text."""
    try:
        return secret_value(secret, key).decode()
    except UnicodeDecodeError:
        return ""


def encoded(value: bytes) -> str:
    """Return a value as a Secret's `data` holds it."""
    return base64.b64encode(value).decode()
