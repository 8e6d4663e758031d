"""What a stream has told of one cluster: which objects there are, and in which state."""

from collections.abc import Collection, Iterator

from clusterspace.fleet.gateway.merge.watch_items import Change, Head


class SentObjects:
    """Two texts for each object, however large it is: a stream holds no copy of its clusters."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._held)

    def note(self, change: Change, head: Head) -> None:
        """Remember what has been told of an object."""
        if change is Change.DELETED:
            self._held.pop(head.key, None)
        else:
            self._held[head.key] = _state_of(head)

    def has(self, head: Head) -> bool:
        """Whether just this state was the last one told of the object."""
        return self._held.get(head.key) == _state_of(head)

    def changes(self, listed: Head) -> Iterator[tuple[Change, Head]]:
        """Yield what a listed object is to somebody who was told what is held here."""
        held = self._held.get(listed.key)
        if held == _state_of(listed):
            return
        if held is not None and _uid_in(held) != listed.uid:
            # Deleted and made again while nobody looked: two things happened.
            told = Head(listed.name, listed.namespace, _uid_in(held), listed.resource_version)
            yield Change.DELETED, told
            held = None
        yield (Change.ADDED if held is None else Change.MODIFIED), listed

    def missing(self, listed: Collection[str], version: str) -> Iterator[Head]:
        """Yield what a whole list of this version no longer has."""
        for key in sorted(self._held.keys() - listed):
            namespace, _, name = key.partition("/")
            yield Head(name, namespace, _uid_in(self._held[key]), version)


def _state_of(head: Head) -> str:
    return f"{head.uid} {head.resource_version}"


def _uid_in(state: str) -> str:
    return state.partition(" ")[0]
