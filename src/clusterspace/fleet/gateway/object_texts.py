"""Texts of objects, many to a block; and lists of them, by what their fields say.

    Block      texts that were read together. Packed when room is short: those of one kind are much
               alike, and take a tenth of their room side by side
    Text       one text, by its block and its place there
    Texts      texts in the order of a list, unpacked block by block as they are needed
    KnownList  what a member has last told one caller, and columns of it: what a field says in each
               object, read once and compared or sorted by as often as somebody asks

A list of a thousand objects that is asked for ten of them is selected, sorted and cut by its
columns. Only the ten are unpacked.
"""

import asyncio
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, overload

import msgspec

BLOCK_TEXTS: Final = 32
_LEVEL: Final = 1
_READ_AT_ONCE: Final = 128
"""Objects whose fields are looked into before others take their turn: a millisecond or two."""
_MOST_COLUMNS: Final = 6
_COLUMN_BYTES: Final = 150
"""What a column takes for each object, about: a value of its own, and its place in two orders."""


_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Block:
    """Texts that were read at the same time."""

    __slots__ = ("_packed", "_plain", "lengths", "live", "read_at")

    def __init__(self, read_at: float, texts: Sequence[msgspec.Raw]) -> None:
        self.read_at = read_at
        self.lengths = array("I", map(len, texts))
        self.live = len(texts)
        """How many of its texts are kept still: without any, the block is not."""
        self._plain: Sequence[msgspec.Raw] | None = texts
        self._packed = b""

    @classmethod
    def of_packed(cls, read_at: float, lengths: Sequence[int], packed: bytes) -> "Block":
        """Return a block as it was packed before, of texts that are JSON; else raise ValueError.

        It may come from a file, and its texts become parts of answers as they are.
        """
        block = cls(read_at, ())
        block.lengths, block.live = array("I", lengths), len(lengths)
        block._plain, block._packed = None, packed
        size, unpacking = sum(lengths), zlib.decompressobj()
        # As long as its texts and no longer: what packs well must not be gigabytes.
        try:
            content = unpacking.decompress(packed, size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(content) != size or not unpacking.eof:
            raise ValueError("a block is not as long as its texts")
        joined, at = memoryview(content), 0
        for length in lengths:
            _check_json(joined[at : at + length])
            at += length
        return block

    @property
    def is_packed(self) -> bool:
        """Whether its texts have to be unpacked."""
        return self._plain is None

    @property
    def weight(self) -> int:
        """How many bytes its texts take as they are kept now."""
        return sum(self.lengths) if self._plain is not None else len(self._packed)

    def texts(self) -> Sequence[msgspec.Raw]:
        """Return all its texts, in order."""
        if self._plain is not None:
            return self._plain
        joined, at, found = memoryview(zlib.decompress(self._packed)), 0, list[msgspec.Raw]()
        for length in self.lengths:
            found.append(msgspec.Raw(joined[at : at + length]))
            at += length
        return found

    def text(self, number: int) -> msgspec.Raw:
        """Return one of its texts; of a packed block nothing behind it is unpacked."""
        if self._plain is not None:
            return self._plain[number]
        end = sum(self.lengths[: number + 1])
        joined = zlib.decompressobj().decompress(self._packed, end)
        return msgspec.Raw(joined[end - self.lengths[number] :])

    def packed(self) -> bytes:
        """Return its texts in little room: work for another thread, done once."""
        if not self._packed:
            self._packed = zlib.compress(b"".join(map(bytes, self.texts())), _LEVEL)
        return self._packed

    def pack(self) -> None:
        """Keep what `packed` returns in place of the texts."""
        self._packed, self._plain = self.packed(), None


class Text(NamedTuple):
    """The text of one state of an object."""

    block: Block
    at: int

    @property
    def read_at(self) -> float:
        """When it was read."""
        return self.block.read_at

    @property
    def size(self) -> int:
        """How long it is, unpacked."""
        return self.block.lengths[self.at]


def in_blocks(read_at: float, texts: Sequence[msgspec.Raw]) -> Iterator[Text]:
    """Yield texts that were just read, many of them in one block."""
    for start in range(0, len(texts), BLOCK_TEXTS):
        block = Block(read_at, texts[start : start + BLOCK_TEXTS])
        yield from (Text(block, at) for at in range(block.live))


class Texts(Sequence[msgspec.Raw]):
    """Texts in the order of a list, unpacked when they are looked at."""

    __slots__ = ("_places",)

    def __init__(self, places: Sequence[Text]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> msgspec.Raw: ...

    @overload
    def __getitem__(self, at: slice) -> "Texts": ...

    def __getitem__(self, at: int | slice) -> "msgspec.Raw | Texts":
        if isinstance(at, slice):
            return Texts(self._places[at])
        place = self._places[at]
        return place.block.text(place.at)

    def __iter__(self) -> Iterator[msgspec.Raw]:
        # Objects of a list were mostly read together: each block is unpacked once, in passing.
        block, texts = None, tuple[msgspec.Raw, ...]()
        for place in self._places:
            if place.block is not block:
                block, texts = place.block, tuple(place.block.texts())
            yield texts[place.at]

    @staticmethod
    def weight_of(texts: Sequence[msgspec.Raw]) -> int:
        """Return how many bytes keeping texts takes, about: of blocks, all of each."""
        if not isinstance(texts, Texts):
            return sum(map(len, texts))
        return sum(each.weight for each in {place.block for place in texts._places})


# -- lists by what fields say ----------------------------------------------------------------------

ReadField: TypeAlias = Callable[[msgspec.Raw], Any]
"""Reads what a column has of an object. What it returns can be compared and sorted."""


@dataclass(slots=True)
class Column:
    """What one field says in each object of a list."""

    values: Sequence[Any]
    _places: "dict[str, int | array[int]] | None" = None
    _orders: dict[bool, Sequence[int]] = field(default_factory=dict[bool, Sequence[int]])

    def places(self, text: str) -> Sequence[int]:
        """Return the objects, by number, that have a text there, where values are tuples of texts.

        In the order of the list. Whoever asks for what no object has is told so at once.
        """
        if self._places is None:
            # Where most say something of their own, a number is all there is room for.
            found: dict[str, int | array[int]] = {}
            for number, value in enumerate(self.values):
                for each in set(value):
                    others = found.setdefault(each, number)
                    if isinstance(others, array):
                        others.append(number)
                    elif others != number:
                        found[each] = array("I", (others, number))
            self._places = found
        places = self._places.get(text, ())
        return (places,) if isinstance(places, int) else places

    def order(self, *, is_descending: bool) -> Sequence[int]:
        """Return the objects, by number, in the order of their values; what is alike stays."""
        found = self._orders.get(is_descending)
        if found is None:
            every = range(len(self.values))
            found = array("I", sorted(every, key=self.values.__getitem__, reverse=is_descending))
            self._orders[is_descending] = found
        return found


class KnownList:
    """A whole list of one member, as it was last told to one caller."""

    def __init__(
        self, kind: str, api_version: str, version: str, read_at: float, texts: Sequence[Text]
    ) -> None:
        self.kind = kind
        self.api_version = api_version
        self.version = version
        self.read_at = read_at
        self.allowed_at = read_at
        """When the member last said that the caller may see it."""
        self.texts = texts
        self._columns: OrderedDict[str, Column] = OrderedDict()
        self._former: KnownList | None = None

    def follow(self, former: "KnownList | None") -> None:
        """Take the place of a list: what is still as it was need not be read again."""
        self._former = former
        if former is None:
            return
        # One list back is enough, and no more is kept: lists that each knew the one before would
        # keep all there ever were.
        former._former = None
        if former.texts == self.texts:
            self._columns, self._former = former._columns, None

    async def column(self, name: str, read: ReadField) -> Column:
        """Return what a field says in each object; `name` tells what is read from what else is."""
        found = self._columns.get(name)
        if found is None:
            known = dict[Text, Any]()
            former = self._former
            if former is not None and name in former._columns:
                known = dict(zip(former.texts, former._columns[name].values, strict=True))
            values: list[Any] = []
            shared: dict[Any, Any] = {}  # most objects say the same as many others
            unread = Texts([each for each in self.texts if each not in known])
            fresh = iter(unread)
            for number, place in enumerate(self.texts, 1):
                value = known[place] if place in known else read(next(fresh))
                values.append(shared.setdefault(value, value))
                if not number % _READ_AT_ONCE:
                    await asyncio.sleep(0)
            found = self._columns[name] = Column(values)
            while len(self._columns) > _MOST_COLUMNS:
                self._columns.popitem(last=False)
        self._columns.move_to_end(name)
        return found

    @property
    def weight(self) -> int:
        """How many bytes it takes beside the texts, about."""
        return len(self.texts) * (8 + _COLUMN_BYTES * len(self._columns))

    def part(self, numbers: Iterable[int]) -> Texts:
        """Return the texts of these objects."""
        return Texts([self.texts[each] for each in numbers])
