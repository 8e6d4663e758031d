"""The YAML of a plan read as it comes: an entry is made of each item before the next is read.

A YAML library makes a tree of all that is in a file, which for thousands of entries is a hundred
times as large as the file. Here it only says what comes next: a word, a list that begins, its end.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, cast

import yaml

ITEMS: Final = ("spec", "items")
_MOST_WORDS: Final = 1000
"""That are remembered: fields and kinds come often, names and UIDs once."""


class PlanReader(yaml.SafeLoader):
    """Reads one document; whatever is at `spec.items` is told to `note`, and not kept here.

    Of PyYAML's loader it uses what says whether a word is a number, a truth or a text. What comes
    next is said by libyaml, which is much faster.
    """

    def __init__(self, text: bytes | BinaryIO, note: Callable[[Any, int], None]) -> None:
        super().__init__("")
        parsed = yaml.parse(text, Loader=yaml.CSafeLoader)  # pyright: ignore[reportUnknownVariableType]
        self._events = cast("Iterator[Any]", parsed)
        self._note = note
        self._anchors: dict[str, Any] = {}
        self._words: dict[str, Any] = {}
        """What plain words mean that were seen before: most are seen very often."""

    def read(self) -> Any:
        """Return the document; YAMLError says where it is none."""
        value: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                value = self._value(next(self._events), ())
                if documents > 1:
                    raise _problem("a plan is one document, and here another begins", event)
        return value

    def _value(self, event: Any, path: tuple[str, ...] | None) -> Any:
        """Return what begins with an event; `path` is None where no items can be any more."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _problem(f"there is no anchor {event.anchor}", event)
            return self._anchors[event.anchor]
        if isinstance(event, yaml.ScalarEvent):
            word = self._word(event)
            self._anchors |= {event.anchor: word} if event.anchor else {}
            return word
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(event, path)
        found: dict[Any, Any] = {}
        self._anchors |= {event.anchor: found} if event.anchor else {}
        for first in self._until(yaml.MappingEndEvent):
            key = self._value(first, None)
            if isinstance(key, list | dict):
                raise _problem("a key is a word", first)
            if key in found:
                # Of two words about an object nobody knows which one is meant: `take` above all.
                raise _problem(f"{key} is there twice", first)
            below = None if path is None else (*path, str(key))
            is_on_the_way = below is not None and ITEMS[: len(below)] == below
            found[key] = self._value(next(self._events), below if is_on_the_way else None)
        return found

    def _list(self, event: Any, path: tuple[str, ...] | None) -> list[Any]:
        found: list[Any] = []
        self._anchors |= {event.anchor: found} if event.anchor else {}
        for index, first in enumerate(self._until(yaml.SequenceEndEvent)):
            read = self._value(first, None)
            if path == ITEMS:
                self._note(read, index)
            else:
                found.append(read)
        return found

    def _until(self, end: type[Any]) -> Iterator[Any]:
        """Yield events by which something begins, until what holds it ends."""
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _word(self, event: Any) -> Any:
        is_plain = event.tag is None and event.implicit[0]
        if not is_plain and event.tag is None:
            return event.value  # in quotation marks
        if is_plain and event.value in self._words:
            return self._words[event.value]
        resolve = cast("Callable[..., str]", self.resolve)
        tag = event.tag or resolve(yaml.ScalarNode, event.value, event.implicit)
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        word = self.construct_object(node)
        self.constructed_objects.clear()
        if is_plain and len(event.value) < 64 and len(self._words) < _MOST_WORDS:
            self._words[event.value] = word
        return word


def _problem(what: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)
