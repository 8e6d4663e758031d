"""The stored form of objects: their keys, their bytes, and answers spliced from them undecoded.

An object is stored as JSON that begins with kind, apiVersion and metadata, in that order, and has
no resourceVersion: that is the revision the store gives it. So the bytes before the first
metadata field are the same for every object of a resource, and an answer is

    head  + revision + '",' + the stored bytes after their own head
    {"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"17","name":"web-0", …

Serving another version of a custom resource swaps the head; a list of built-in objects, whose
items carry no kind, uses a shorter one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.builtins.conversions import Conversion
from clusterspace.builtins.printers.cells import Printer
from clusterspace.errors import RequestEntityTooLarge, StoreCorrupt
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.protobuf.encoding import encode_message
from clusterspace.kube.shapes import MAX_STORED_CONTAINERS, refuse_too_many
from clusterspace.kube.tables import IncludeObject, table

_ROOT: Final = "/registry/"
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()
LARGEST_OBJECT: Final = 3 * 1024 * 1024
"""What is stored may be as large as a body; etcd refuses half of it already."""

_DENSE: Final = 2 * MAX_STORED_CONTAINERS
"""Bytes that this many lists and objects take at least."""

_RV: Final = b'"resourceVersion":"'


def collection_key(group: str, plural: str, namespace: str = "") -> str:
    """Return the prefix of a resource's objects, or of those in one namespace.

    It ends with a slash, so that `/registry/g/foo/` never covers `/registry/g/foobar/…`.
    """
    base = f"{_ROOT}{group or 'core'}/{plural}/"
    return f"{base}{namespace}/" if namespace else base


def object_key(group: str, plural: str, namespace: str, name: str) -> str:
    """Return the key of one object; cluster-scoped objects have no namespace."""
    return collection_key(group, plural, namespace) + name


def name_in(key: str) -> str:
    """Return the object's name."""
    return key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Form:
    """How one served version of a resource relates to its stored bytes."""

    kind: str
    api_version: str
    stored_head: bytes
    head: bytes
    item_head: bytes
    bare_items: bool
    conversion: Conversion | None = None
    """How to get from one shape to the other, for the few kinds that have two."""
    renew: Callable[[Object], Object] | None = None
    """Brings an object that was stored under another schema into the form of this one."""
    renewed_upto: int = 0
    """The last revision at which objects may have been stored under another schema."""

    def is_spliced(self, entry: KeyValue) -> bool:
        """Whether the stored bytes are what is served, but for their head.

        Custom objects are stored with the defaults of their day, by a storage version of their day.
        Those that were written since the definition last changed are as it wants them.
        """
        if self.conversion is not None:
            return False
        is_old = entry.mod_revision <= self.renewed_upto
        return self.renew is None or (not is_old and entry.value.startswith(self.stored_head))

    @classmethod
    def of(
        cls,
        *,
        kind: str,
        api_version: str,
        stored_version: str,
        bare_items: bool,
        conversion: Conversion | None = None,
        renew: Callable[[Object], Object] | None = None,
        renewed_upto: int = 0,
    ) -> "Form":
        """Build the form of a kind served as `api_version` and stored as `stored_version`."""
        head = _head(kind, api_version)
        item_head = b'{"metadata":{' if bare_items else head
        return cls(
            kind=kind,
            api_version=api_version,
            stored_head=_head(kind, stored_version),
            head=head + _RV,
            item_head=item_head + _RV,
            bare_items=bare_items,
            conversion=conversion,
            renew=renew,
            renewed_upto=renewed_upto,
        )


def _head(kind: str, api_version: str) -> bytes:
    text = _encoder.encode({"kind": kind, "apiVersion": api_version, "metadata": {}})
    return text[:-2]


def encode_stored(kube_object: Object, form: Form) -> bytes:
    """Return the bytes to store: the head first, no resourceVersion."""
    if form.conversion is not None:
        kube_object = form.conversion.to_stored(kube_object)
    metadata = {k: v for k, v in kube_object["metadata"].items() if k != "resourceVersion"}
    rest = {k: v for k, v in kube_object.items() if k not in _LEADING}
    tail = _encoder.encode({"metadata": metadata, **rest})
    if len(tail) > LARGEST_OBJECT:
        # Patches can make an object grow without end, each of them within the limit of a body.
        raise RequestEntityTooLarge(
            f"the object would be {len(tail)} bytes when stored; the limit is {LARGEST_OBJECT}"
        )
    if len(tail) > _DENSE and tail.count(b"{") + tail.count(b"[") > MAX_STORED_CONTAINERS:
        # Signs in texts count too, so this is no proof yet.
        refuse_too_many(kube_object)
    return form.stored_head + tail[len(b'{"metadata":{') :]


_LEADING: Final = frozenset({"kind", "apiVersion", "metadata"})


def decode_stored(entry: KeyValue, form: Form) -> Object:
    """Return the object with its kind as served and its resourceVersion."""
    stored: Object = _decoder.decode(entry.value)
    metadata = {**stored["metadata"], "resourceVersion": str(entry.mod_revision)}
    rest = {k: v for k, v in stored.items() if k not in _LEADING}
    if form.conversion is not None:
        return form.conversion.from_stored({"metadata": metadata, **rest})
    head = {"kind": form.kind, "apiVersion": form.api_version}
    shown: Object = {**head, "metadata": metadata, **rest}
    return shown if form.renew is None or form.is_spliced(entry) else form.renew(shown)


def object_bytes(entry: KeyValue, form: Form) -> bytes:
    """Return the answer to a GET, spliced."""
    if not form.is_spliced(entry):
        return encode(decode_stored(entry, form))
    return b"".join(_pieces(entry, form.head, form))


def item_pieces(entries: Iterable[KeyValue], form: Form) -> list[bytes]:
    """Return the items of a list as pieces to be written one after the other."""
    pieces: list[bytes] = []
    for entry in entries:
        if pieces:
            pieces.append(b",")
        if not form.is_spliced(entry):
            pieces.append(encode(as_item(decode_stored(entry, form), form)))
        else:
            pieces.extend(_pieces(entry, form.item_head, form))
    return pieces


def metadata_pieces(entries: Iterable[KeyValue], form: Form, version: str) -> list[bytes]:
    """Return the items of a list of metadata, in this version of `meta.k8s.io`, as pieces.

    Metadata has the same bytes there as in the object itself, cut out of what is stored.
    """
    head = encode({"kind": "PartialObjectMetadata", "apiVersion": version})[:-1]
    pieces: list[bytes] = []
    for entry in entries:
        if pieces:
            pieces.append(b",")
        if not form.is_spliced(entry):
            metadata = encode(metadata_of(decode_stored(entry, form)))
            pieces.append(b'%b,"metadata":%b}' % (head, metadata))
        else:
            metadata = bytes(_text_decoder.decode(entry.value).metadata)
            opening = b'%b,"metadata":{%b%d",' % (head, _RV, entry.mod_revision)
            pieces += (opening, metadata[1:], b"}")
    return pieces


def as_item(kube_object: Object, form: Form) -> Object:
    """Return an object as its list shows it: items of a built-in list carry no kind."""
    if not form.bare_items:
        return kube_object
    return {k: v for k, v in kube_object.items() if k not in ("kind", "apiVersion")}


def _pieces(entry: KeyValue, head: bytes, form: Form) -> tuple[bytes, ...]:
    value = entry.value
    if not value.startswith(form.stored_head):
        raise StoreCorrupt(f"{entry.key} does not begin as a {form.kind} should")
    return (head, b"%d" % entry.mod_revision, b'",', value[len(form.stored_head) :])


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _MetadataOnly(msgspec.Struct):
    metadata: _Metadata


class _MetadataText(msgspec.Struct):
    metadata: msgspec.Raw


_metadata_decoder: Final = msgspec.json.Decoder(_MetadataOnly)
_text_decoder: Final = msgspec.json.Decoder(_MetadataText)


def labels_in(entry: KeyValue) -> dict[str, str]:
    """Return the labels of a stored object, decoding nothing else."""
    return _metadata_decoder.decode(entry.value).metadata.labels or {}


def encode(value: Any) -> bytes:
    """Return JSON bytes."""
    return _encoder.encode(value)


def table_of(
    objects: Iterable[Object],
    printer: Printer,
    *,
    list_metadata: Object,
    include: IncludeObject,
    now: float,
) -> Object:
    """Return the Table of some objects of one kind."""
    rows = (printer.row_of(each, now, include) for each in objects)
    return table(printer.columns, rows, list_metadata)


# -- as protobuf: encoded once, kept for whoever reads the same version next -----------------------
#
# JSON answers are spliced from stored bytes; for protobuf an object has to be decoded and written
# anew, which takes a hundred times as long. But most objects are read far more often than they are
# written, by informers that list them after a reconnect and by watchers that all get the same
# event. So the message of an object is kept until the object has another version, or until it is
# the one that nobody has asked for in the longest time when all of them together have grown too
# large.

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of messages that are kept: 40,000 Pods of 1.5 KB."""

_OVERHEAD: Final = 200
"""Bytes that keeping a message takes beside it, roughly."""


class EncodedObjects:
    """The messages of stored objects, by key and served version; for the event loop only.

    What is kept is what a pure function of a stored object returned, and the store gives every
    version of an object a revision of its own. So nothing here can be out of date: a version that
    nobody reads any more is merely in the way, and goes in its turn. That holds for entries of the
    store only, not for ones that were made up for an event.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], tuple[Revision, bytes]] = OrderedDict()

    def find(self, entry: KeyValue, form: Form) -> bytes | None:
        """Return the message of this very version of an object, if it is kept."""
        key = (form.api_version, entry.key)
        kept = self._kept.get(key)
        if kept is None or kept[0] != entry.mod_revision:
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def keep(self, entry: KeyValue, form: Form, message: bytes) -> None:
        """Keep a message, in place of any older version of the same object."""
        key = (form.api_version, entry.key)
        last = self._kept.get(key)
        if last is not None:
            if last[0] >= entry.mod_revision:
                return  # a look into the past: what is read next is what there is now
            self._bytes -= len(last[1]) + _OVERHEAD
        self._kept[key] = (entry.mod_revision, message)
        self._kept.move_to_end(key)
        self._bytes += len(message) + _OVERHEAD
        while self._bytes > self._most_bytes:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD

    def message(self, entry: KeyValue, form: Form) -> bytes:
        """Return the message of an object, encoded here and now if it is not kept."""
        found = self.find(entry, form)
        if found is None:
            found = encode_entry(entry, form)
            self.keep(entry, form, found)
        return found


def encode_entry(entry: KeyValue, form: Form) -> bytes:
    """Return the message of a stored object as it is served."""
    return encode_message(decode_stored(entry, form), form.api_version, form.kind)


def encode_entries(entries: Sequence[KeyValue], form: Form) -> list[bytes]:
    """Return the messages of many stored objects; long work, for wherever that is done."""
    return [encode_entry(entry, form) for entry in entries]
