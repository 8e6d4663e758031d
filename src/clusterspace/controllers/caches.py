"""Objects as bytes under their keys, with indexes.

Objects are kept as the JSON they came in: a decoded one takes five times the memory, and most
are never read. Reading decodes, so everyone gets an object of their own.
"""

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import TypeAlias

from clusterspace.client.raw_objects import RawObject, Version, decode_object, version_in
from clusterspace.kube.objects import Object, find_at, labels_of, uid_of
from clusterspace.kube.selectors import LabelSelector

IndexKeys: TypeAlias = Callable[[Object], Iterable[str]]
"""Under which words an object is to be found."""


class Cache:
    """The objects of one collection, undecoded, by key and by index."""

    def __init__(self, indexes: Mapping[str, IndexKeys] | None = None) -> None:
        self._objects: dict[str, bytes] = {}
        self._index_keys: dict[str, IndexKeys] = {}
        self._indexes: dict[str, dict[str, set[str]]] = {}
        self.add_indexes(indexes or {})

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def add_indexes(self, indexes: Mapping[str, IndexKeys]) -> None:
        """Keep these indexes as well; one that is kept already may be asked for again."""
        for name, keys_of in indexes.items():
            known = self._index_keys.get(name)
            if known is not None and known is not keys_of:
                raise ValueError(f"there is another index called {name}")
            if known is None:
                self._index_keys[name] = keys_of
                index = self._indexes[name] = {}
                for key, raw in self._objects.items():
                    for word in keys_of(decode_object(raw)):
                        index.setdefault(word, set()).add(key)

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects."""
        return self._objects.keys()

    def find(self, key: str) -> Object | None:
        """Return an object, or None."""
        raw = self._objects.get(key)
        return None if raw is None else decode_object(raw)

    def find_raw(self, key: str) -> bytes | None:
        """Return the bytes of an object, or None."""
        return self._objects.get(key)

    def find_version(self, key: str) -> Version | None:
        """Return the version of an object, or None."""
        raw = self._objects.get(key)
        return None if raw is None else version_in(raw)

    def objects(self, selector: LabelSelector | None = None) -> Iterator[Object]:
        """Yield the objects, or those whose labels match."""
        for raw in list(self._objects.values()):
            kube_object = decode_object(raw)
            if selector is None or selector.matches(labels_of(kube_object)):
                yield kube_object

    def keys_at(self, index: str, word: str) -> frozenset[str]:
        """Return the keys an index has under a word."""
        return frozenset(self._indexes[index].get(word, ()))

    def objects_at(self, index: str, word: str) -> list[Object]:
        """Return the objects an index has under a word, in the order of their keys."""
        return [decode_object(self._objects[key]) for key in sorted(self.keys_at(index, word))]

    def words_of(self, index: str, kube_object: Object) -> Iterable[str]:
        """Return the words under which an index would have an object."""
        return self._index_keys[index](kube_object)

    def put(self, item: RawObject) -> None:
        """Add an object or replace it."""
        if self._indexes:
            before, after = self.find(item.key), item.decode()
            self._reindex(item.key, before, after)
        self._objects[item.key] = item.raw

    def remove(self, key: str) -> bytes | None:
        """Forget an object; return what was known of it."""
        raw = self._objects.pop(key, None)
        if raw is not None and self._indexes:
            self._reindex(key, decode_object(raw), None)
        return raw

    def _reindex(self, key: str, before: Object | None, after: Object | None) -> None:
        for name, keys_of in self._index_keys.items():
            index = self._indexes[name]
            old = set(keys_of(before)) if before is not None else set[str]()
            new = set(keys_of(after)) if after is not None else set[str]()
            for word in old - new:
                index[word].discard(key)
                if not index[word]:
                    del index[word]
            for word in new - old:
                index.setdefault(word, set()).add(key)


def by_owner_uid(kube_object: Object) -> Iterable[str]:
    """Index objects by the UIDs of their owners."""
    owners = find_at(kube_object, "metadata", "ownerReferences") or ()
    return [str(owner["uid"]) for owner in owners if owner.get("uid")]


def by_uid(kube_object: Object) -> Iterable[str]:
    """Index objects by their UID."""
    return (uid_of(kube_object),)


def by_label(label: str) -> IndexKeys:
    """Return an index of objects by the value of one label."""

    def keys_of(kube_object: Object) -> Iterable[str]:
        value = labels_of(kube_object).get(label)
        return () if value is None else (value,)

    return keys_of
