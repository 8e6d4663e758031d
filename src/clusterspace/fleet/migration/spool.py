"""Many values in a file that nobody sees: a migration knows all of its objects, and holds few.

    items = Spool(PlanItem)
    items.add(item, key="Deployment shop/web", group="shop", order=("4", "shop", "web"))
    first = next(items.ordered())

SQLite makes a file without a name for it when it grows, and the system takes that back with the
process, however that ends. Of however many values a few hundred are in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, cast, overload

import apsw
import msgspec

_AT_ONCE: Final = 100
_SETTINGS: Final = """
PRAGMA cache_size = -1024;
PRAGMA temp_store = FILE;
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
CREATE TABLE held (
    place INTEGER PRIMARY KEY, named TEXT NOT NULL UNIQUE, part TEXT NOT NULL, rank BLOB NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX parts ON held (part, place);
"""

Value = TypeVar("Value")


class Spool(Sequence[Value], Generic[Value]):
    """Values of one type in the order in which they came, each with a key and in a group."""

    def __init__(self, kind: type[Value]) -> None:
        self._file = apsw.Connection("")
        self._file.execute(_SETTINGS).fetchall()
        self._decoder = msgspec.json.Decoder(kind)
        self._next = 0

    def add(
        self, value: Value, key: str, group: str = "", order: tuple[str, ...] = ()
    ) -> int | None:
        """Add a value; or return the place of the one that has this key already."""
        # No name has a NUL in it: the texts compare like the tuples.
        rank = "\0".join(order).encode()
        row = self._next, key, group, rank, msgspec.json.encode(value)
        try:
            self._file.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?)", row)
        except apsw.ConstraintError:
            return int(next(self._rows("SELECT place FROM held WHERE named = ?", key))[0])
        self._next += 1
        return None

    def find(self, key: str) -> Value | None:
        """Return the value of a key, if there is one."""
        return next(self._values("SELECT body FROM held WHERE named = ?", key), None)

    def replace(self, key: str, value: Value) -> None:
        """Have another value in the place of the one that has this key."""
        body = msgspec.json.encode(value)
        self._file.execute("UPDATE held SET body = ? WHERE named = ?", (body, key))

    def remove(self, key: str) -> None:
        """Remove the value of a key, if there is one."""
        self._file.execute("DELETE FROM held WHERE named = ?", (key,))

    def of(self, group: str) -> Iterator[Value]:
        """Yield the values of a group, in their order."""
        return self._values("SELECT body FROM held WHERE part = ? ORDER BY place", group)

    def ordered(self) -> Iterator[Value]:
        """Yield the values by the order that each was added with."""
        return self._values("SELECT body FROM held ORDER BY rank, place")

    def __iter__(self) -> Iterator[Value]:
        # A page at a time: whoever iterates may remove what it has seen.
        last = -1
        while page := list(
            self._rows(
                "SELECT place, body FROM held WHERE place > ? ORDER BY place LIMIT ?",
                last,
                _AT_ONCE,
            )
        ):
            for place, body in page:
                yield self._decoder.decode(body)
                last = place

    def __len__(self) -> int:
        return int(next(self._rows("SELECT count(*) FROM held"))[0])

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = index if index >= 0 else len(self) + index
        query = "SELECT body FROM held ORDER BY place LIMIT 1 OFFSET ?"
        for found in self._values(query, at) if at >= 0 else ():
            return found
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(self) == len(others) and all(
            mine == theirs for mine, theirs in zip(self, others, strict=True)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _values(self, query: str, *values: Any) -> Iterator[Value]:
        return (self._decoder.decode(each[0]) for each in self._rows(query, *values))

    def _rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        return iter(cast("Iterable[tuple[Any, ...]]", self._file.execute(query, values)))
