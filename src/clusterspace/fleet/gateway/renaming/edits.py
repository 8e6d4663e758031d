"""JSON text changed in a few places; everything else stays as it was written, byte for byte.

A text is taken apart only along the way to the places that change: one level of an object becomes
a dictionary of texts, and only the texts on the way are taken apart in turn. Spaces, escapes,
numbers and the order of keys survive wherever nobody goes. What changes is said as a tree:

    {"metadata": {"name": qualified, "ownerReferences": {EACH: {"name": qualified}}}}

Decoding a whole 4 KB pod and encoding it again costs three times as much. Searching the bytes for
`"name":` is no way: labels, containers and annotations have names too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.errors import MalformedObject

EACH: Final = "*"
"""The key of a tree that stands for every element of a list."""

Fields: TypeAlias = dict[str, Any]
"""One level of an object: its keys, with texts that have not been read."""

Change: TypeAlias = Callable[[str], str]
"""What becomes of the string in one place."""

Tree: TypeAlias = Mapping[str, "Node"]
"""Where strings change, and into what, by the keys that lead there."""

Node: TypeAlias = Tree | Change
"""What a tree says of one place: what changes below it, or what becomes of the string there."""

Edit: TypeAlias = Callable[[msgspec.Raw], Any]
"""Returns the very same text when nothing changes, else anything that encodes to the new one."""

_Raw: TypeAlias = msgspec.Raw

encode: Final = msgspec.json.Encoder().encode
_read_fields: Final = msgspec.json.Decoder(dict[str, _Raw]).decode
_read_list: Final = msgspec.json.Decoder(list[_Raw]).decode
_read_objects: Final = msgspec.json.Decoder(list[dict[str, _Raw]]).decode
_read_text: Final = msgspec.json.Decoder(str).decode

# A value of another type than the place should have is left for the cluster to judge.
_NOT_THAT: Final = (msgspec.DecodeError, UnicodeDecodeError)


def read_object(body: bytes | msgspec.Raw, place: str = "body") -> Fields:
    """Take one object apart; raise MalformedObject when the text is none."""
    try:
        return _read_fields(body)
    except _NOT_THAT as error:
        raise MalformedObject(f"{place} is not a JSON object: {error}", place=place) from error
    except RecursionError as error:
        raise MalformedObject(f"{place} is nested too deeply", place=place) from error


def read_list(body: bytes | msgspec.Raw, place: str = "body") -> list[msgspec.Raw]:
    """Take one list apart; raise MalformedObject when the text is none."""
    try:
        return _read_list(body)
    except _NOT_THAT as error:
        raise MalformedObject(f"{place} is not a JSON list: {error}", place=place) from error
    except RecursionError as error:
        raise MalformedObject(f"{place} is nested too deeply", place=place) from error


def text_at(fields: Fields, key: str) -> str:
    """Return the string under a key, or an empty one when there is none."""
    try:
        return _read_text(fields[key]) if key in fields else ""
    except _NOT_THAT:
        return ""


def edit_object(body: bytes, tree: Tree) -> bytes:
    """Return the body of one object with its places changed; the same bytes when none did."""
    fields = read_object(body)
    edited = editor_of(tree)(fields)
    return body if edited is fields else encode(edited)


def editor_of(tree: Tree) -> Callable[[Fields], Fields]:
    """Return a function that edits split fields: into a copy, or the same if nothing changes."""
    return fields_editor({key: edit_of(below) for key, below in tree.items()})


def fields_editor(edits: Mapping[str, Edit]) -> Callable[[Fields], Fields]:
    """Return a function that edits split fields, by an edit for each of them."""
    change = _change_of(edits.items())

    def edit(fields: Fields) -> Fields:
        draft = dict(fields)
        return draft if change(draft) else fields

    return edit


def edit_of(tree: Node) -> Edit:
    """Return the edit of one JSON text (an object, a list or a string) that the tree describes."""
    if callable(tree):
        return on_text(tree)
    if EACH in tree:
        each = tree[EACH]
        if callable(each) or EACH in each:
            return in_each(edit_of(each))
        return in_each_object({key: edit_of(below) for key, below in each.items()})
    return in_fields({key: edit_of(below) for key, below in tree.items()})


def on_text(change: Change) -> Edit:
    """Return the edit of a string."""

    def edit(text: msgspec.Raw) -> Any:
        try:
            value = _read_text(text)
        except _NOT_THAT:
            return text
        changed = change(value)
        return text if changed == value else changed

    return edit


def in_fields(edits: Mapping[str, Edit]) -> Edit:
    """Return the edit of an object by the edits of its fields."""
    change = _change_of(edits.items())

    def edit(text: msgspec.Raw) -> Any:
        try:
            fields = _read_fields(text)
        except _NOT_THAT:
            return text
        return fields if change(fields) else text

    return edit


def in_each(below: Edit) -> Edit:
    """Return the edit of a list by the edit of its elements."""

    def edit(text: msgspec.Raw) -> Any:
        try:
            value = _read_list(text)
        except _NOT_THAT:
            return text
        return _elsewise(text, value, [below(element) for element in value])

    return edit


def in_each_object(edits: Mapping[str, Edit]) -> Edit:
    """Return the edit of a list of objects, all taken apart at once: the way of long lists."""
    change = _change_of(edits.items())
    one_by_one = in_each(in_fields(edits))

    def edit(text: msgspec.Raw) -> Any:
        try:
            value = _read_objects(text)
        except _NOT_THAT:
            return one_by_one(text)
        changed = [change(fields) for fields in value]
        return value if True in changed else text

    return edit


def _elsewise(text: msgspec.Raw, value: list[msgspec.Raw], edited: list[Any]) -> Any:
    """Return the list, or its text when no element is another one."""
    for new, old in zip(edited, value, strict=True):
        if new is not old:
            return edited
    return text


def in_element(at: int, below: Edit) -> Edit:
    """Return the edit of one element of a list; of none when the list is shorter."""

    def edit(text: msgspec.Raw) -> Any:
        try:
            value = _read_list(text)
        except _NOT_THAT:
            return text
        edited = [*value[:at], *map(below, value[at : at + 1]), *value[at + 1 :]]
        return _elsewise(text, value, edited)

    return edit


def _change_of(edits: Iterable[tuple[str, Edit]]) -> Callable[[Fields], bool]:
    """Return a function that edits fields in place and returns whether it changed any.

    In place, because these fields were taken apart a moment ago and nobody else has them.
    """
    pairs = tuple(edits)

    def change(fields: Fields) -> bool:
        changed = False
        for key, edit in pairs:
            value = fields.get(key)
            if value is None:
                continue
            edited = edit(value)
            if edited is not value:
                fields[key] = edited
                changed = True
        return changed

    return change


def below(tree: Tree, steps: Iterable[str]) -> Node | None:
    """Return the node of the tree at one place, or None when nothing changes there or below.

    An index of a list, or the `-` behind its end, is a step to each of its elements.
    """
    at: Node = tree
    for step in steps:
        if callable(at):
            return None
        found = at.get(EACH) if EACH in at else at.get(step)
        if found is None:
            return None
        at = found
    return at


def tree_of(places: Iterable[tuple[tuple[str, ...], Change]]) -> Tree:
    """Return the tree of these places, each given by the steps to it."""
    tree: dict[str, Any] = {}
    for steps, change in places:
        branch = tree
        for step in steps[:-1]:
            branch = cast("dict[str, Any]", branch.setdefault(step, {}))
        branch[steps[-1]] = change
    return tree
