"""Custom resources whose versions differ in more than fields: a webhook turns one into another.

Objects are stored in whatever version was the storage version when they were last written. A
request in another version has its entries converted before anything else looks at them, and what
it writes is converted before it is stored:

    store (v2) ──> webhook ──> v1: selected, shown, patched, checked ──> webhook ──> store (v2)

Everything between the two calls is the same as for any other resource. Housekeeping never calls:
it reads and changes metadata only, and leaves an object in the version it is stored in, so that
namespaces end and owners' children go while a webhook is down.

What a webhook may change is bounded, as in Kubernetes: of the metadata only labels and annotations.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.forms import EncodedObjects
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.builtins.definitions import Definition
from clusterspace.client.webhooks import Webhooks
from clusterspace.errors import ApiError, ClusterspaceError
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, metadata_of, name_of

_REVIEW_VERSION: Final = "apiextensions.k8s.io/v1"
_AT_ONCE: Final = 500
"""Objects in one review: a list of thousands is converted in several calls."""

_KEPT_BYTES: Final = 16 * 1024 * 1024
_FIXED: Final = ("name", "namespace", "uid")


class _TypeOnly(msgspec.Struct, rename="camel"):
    api_version: str = ""


_type_decoder: Final = msgspec.json.Decoder(_TypeOnly)


class ConversionWebhook:
    """Converts the objects of one definition between its versions."""

    def __init__(self, definition: Definition, webhooks: Webhooks) -> None:
        self._name = definition.name
        self._config: Object = definition.webhook or {}
        self._webhooks = webhooks
        self._storage = f"{definition.group}/{definition.storage_version}"
        self._kept = EncodedObjects(_KEPT_BYTES)
        self.versions: dict[str, Served] = {}
        """Every version of the definition by its apiVersion, served or not."""

    def replace(self, served: Served) -> None:
        """Use another description of one of the versions."""
        self.versions[served.info.api_version] = served

    def as_stored(self, entry: KeyValue) -> Served:
        """Return the version an object is stored in; one that is defined no more, as storage."""
        stored = _type_decoder.decode(entry.value).api_version
        return self.versions.get(stored) or self.versions[self._storage]

    async def entries(self, entries: Sequence[KeyValue], served: Served) -> list[KeyValue]:
        """Return stored objects as entries in a served version; those already in it as they are."""
        form = served.form
        shown = list(entries)
        missing: list[int] = []
        for place, entry in enumerate(entries):
            if entry.value.startswith(form.stored_head):
                continue
            kept = self._kept.find(entry, form)
            if kept is None:
                missing.append(place)
            else:
                shown[place] = _with_value(entry, kept)
        for start in range(0, len(missing), _AT_ONCE):
            step = missing[start : start + _AT_ONCE]
            stored = [entries[place] for place in step]
            objects = [forms.decode_stored(each, self.as_stored(each).form) for each in stored]
            converted = await self._convert(objects, served)
            for place, entry, each in zip(step, stored, converted, strict=True):
                renewed = each if form.renew is None else form.renew(each)
                value = forms.encode_stored(renewed, form)
                self._kept.keep(entry, form, value)
                shown[place] = _with_value(entry, value)
        return shown

    async def storable(self, kube_object: Object, served: Served) -> tuple[Object, Served]:
        """Return an object as it is to be stored, and the version that is."""
        storage = self.versions[self._storage]
        if served.info.api_version == self._storage:
            return kube_object, storage
        (converted,) = await self._convert([kube_object], storage)
        renew = storage.form.renew
        return (converted if renew is None else renew(converted)), storage

    async def _convert(self, objects: Sequence[Object], served: Served) -> list[Object]:
        """Ask the webhook; an answer that is not exactly what was asked for counts for nothing."""
        wanted = served.info.api_version
        uid = str(uuid.uuid4())
        review: Object = {
            "kind": "ConversionReview",
            "apiVersion": _REVIEW_VERSION,
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objects)},
        }
        failed = f"conversion webhook for {wanted}, Kind={served.info.kind} failed"
        try:
            answer = await self._webhooks.call(
                f"conversion webhook of {self._name}", self._config, review
            )
            converted = _read_answer(answer, uid, len(objects))
            return [
                _checked(before, after, wanted)
                for before, after in zip(objects, converted, strict=True)
            ]
        except (ClusterspaceError, *UNREADABLE, _Unusable) as error:
            # Connections call whatever they lead to a cluster; this one has a name of its own.
            why = error.message if isinstance(error, ApiError) else str(error)
            why = why.removeprefix("cluster ")
            raise statuses.internal(f"{failed}: {why}") from error


class _Unusable(Exception):
    """An answer of a webhook that cannot be taken."""


def _read_answer(answer: Any, uid: str, count: int) -> list[Any]:
    given: Any = cast("Object", answer) if isinstance(answer, dict) else {}
    response: Any = given.get("response")
    if not isinstance(response, dict):
        raise _Unusable("no response provided")
    said = cast("Object", response)
    if said.get("uid") != uid:
        raise _Unusable(f"expected response.uid={uid!r}, got {said.get('uid')!r}")
    result = cast("Object", said.get("result") if isinstance(said.get("result"), dict) else {})
    if result.get("status") != "Success":
        message = str(result.get("message") or "the webhook gave no reason")
        raise _Unusable(message[:1024])
    converted = said.get("convertedObjects")
    if not isinstance(converted, list):
        raise _Unusable("no convertedObjects provided")
    listed = cast("list[Any]", converted)
    if len(listed) != count:
        raise _Unusable(f"returned {len(listed)} objects, expected {count}")
    return listed


def _checked(before: Object, after: Any, api_version: str) -> Object:
    """Return what a webhook made of an object, with the metadata that it may not change."""
    if not isinstance(after, dict):
        raise _Unusable("returned something that is no object")
    made = cast("Object", after)
    if made.get("apiVersion") != api_version or made.get("kind") != before.get("kind"):
        got = f"{made.get('apiVersion')}, Kind={made.get('kind')}"
        raise _Unusable(f"returned invalid type {got} for {name_of(before)!r}")
    given = made.get("metadata")
    if not isinstance(given, dict):
        raise _Unusable(f"returned no metadata for {name_of(before)!r}")
    metadata = metadata_of(before)
    for name in _FIXED:
        if (cast("Object", given).get(name) or "") != (metadata.get(name) or ""):
            raise _Unusable(f"changed metadata.{name} of {name_of(before)!r}")
    kept = {key: value for key, value in metadata.items() if key not in ("labels", "annotations")}
    for name in ("labels", "annotations"):
        value = cast("Object", given).get(name)
        if value:
            if not _is_texts(value):
                raise _Unusable(f"returned metadata.{name} that are no texts")
            kept[name] = value
    return {**made, "metadata": kept}


def _is_texts(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(isinstance(each, str) for each in cast("Object", value).values())


def _with_value(entry: KeyValue, value: bytes) -> KeyValue:
    return KeyValue(entry.key, value, entry.create_revision, entry.mod_revision)
