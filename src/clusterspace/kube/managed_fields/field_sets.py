"""FieldSet: which fields somebody owns, and the path elements it is made of, as in `fieldsV1`.

    f:replicas                       the field `replicas`
    k:{"name":"web"}                 the list element with this key; several keys are sorted
    v:"example.com/f"                the element of a set with this value
    i:0                              the element at this place

Path elements are kept as this text: two are the same exactly when their texts are, which spares us
Python's opinion that 1 is True.

A set is kept in the form `fieldsV1` writes it: a tree of path elements where `{}` is an owned
leaf and `.` marks a place that is owned beside what is below it.

    {"f:spec": {"f:replicas": {}, "f:ports": {".": {}, "v:80": {}}}}

is the set of `.spec.replicas`, `.spec.ports` and `.spec.ports[=80]`; `.spec` itself is not in it.
Reading one costs a check, writing one costs nothing, and taking a small set out of a large one
touches only the small one: all of which happens on every write to every object.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.errors import MalformedObject

FIELD: Final = "f:"
KEY: Final = "k:"
VALUE: Final = "v:"
INDEX: Final = "i:"

# Go's encoder escapes these inside strings, so the stored texts of a real server have them so.
_ESCAPED_BY_GO: Final = re.compile("[<>&\u2028\u2029]")
_GO_ESCAPES: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})

_to_json: Final = msgspec.json.Encoder(order="sorted").encode

# From here on Go prints a whole number with an exponent; until here as an integer.
_FIRST_EXPONENT: Final = 1e21


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the path element of the list element that has these key fields."""
    return KEY + _written({name: _whole(value) for name, value in keys.items()})


def value_element(value: Any) -> str:
    """Return the path element of the set element that has this value."""
    return VALUE + _written(_whole(value))


def canonical(element: str) -> str | None:
    """Return a path element as we would write it; None for a kind we have never heard of.

    Unknown kinds are skipped, not refused: a newer server may know what they are.
    """
    kind, text = element[:2], element[2:]
    if len(kind) < 2 or kind[1] != ":":
        raise _unreadable(element)
    if kind == FIELD:
        return element
    if kind == VALUE:
        return value_element(_read_json(element))
    if kind == KEY:
        return key_element(_read_keys(element))
    if kind == INDEX:
        try:
            return f"{INDEX}{int(text)}"
        except ValueError as error:
            raise _unreadable(element) from error
    return None


def as_text(element: str) -> str:
    """Return a path element as messages show it: `.replicas`, `[name="web"]`, `[="x"]`, `[0]`."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return f".{text}"
    if kind == VALUE:
        return f"[={_shown(_read_json(element))}]"
    if kind == KEY:
        keys = _read_keys(element)
        return "[" + ",".join(f"{name}={_shown(keys[name])}" for name in sorted(keys)) + "]"
    return f"[{text}]"


def _written(value: Any) -> str:
    """Return compact JSON with sorted keys, as Go's encoder would have it."""
    text = _to_json(value).decode()
    return text.translate(_GO_ESCAPES) if _ESCAPED_BY_GO.search(text) else text


def _whole(value: Any) -> Any:
    """Return 1.0 as 1, since JSON has one kind of number."""
    is_whole = type(value) is float and value.is_integer() and abs(value) < _FIRST_EXPONENT
    return int(value) if is_whole else value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _read_json(element: str) -> Any:
    try:
        return msgspec.json.decode(element[2:])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise _unreadable(element) from error


def _read_keys(element: str) -> dict[str, Any]:
    keys = _read_json(element)
    if not isinstance(keys, dict):
        raise _unreadable(element)
    return cast("dict[str, Any]", keys)


def _unreadable(element: str) -> MalformedObject:
    return MalformedObject(f"{element!r} is not a path element of fieldsV1", place=element)


# Invariants of every tree, made by `_settled` and relied on by equality and by `to_json`:
# elements are in sorted order; below the root an empty node is an owned leaf, so an operation that
# leaves nothing returns None and its parent drops the element; a node with only the mark `.` is
# written as a leaf. Trees are never edited once made, so sets share their parts.

Fields: TypeAlias = dict[str, "Fields"]
"""The tree; below the root, an empty one is an owned leaf."""

Path: TypeAlias = tuple[str, ...]
"""Path elements from the root of the object."""

HERE: Final = "."
OWNED: Final[Fields] = {}
"""An owned leaf."""


class FieldSet:
    """A set of paths; never changed once made."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Fields | None = None) -> None:
        self._fields: Fields = fields or {}

    @classmethod
    def of(cls, *paths: Path) -> "FieldSet":
        """Return the set of these paths."""
        union = cls()
        for path in paths:
            tree: Fields = OWNED
            for element in reversed(path):
                tree = {element: tree}
            union = union | cls(tree)
        return union

    @classmethod
    def from_json(cls, raw: Any) -> "FieldSet":
        """Read `fieldsV1`; None is an empty set."""
        node = {} if raw is None else _read(raw)
        return cls(_below(node))

    def to_json(self) -> Fields:
        """Return the tree as `fieldsV1` has it: shared, so never to be edited."""
        return self._fields

    def __bool__(self) -> bool:
        return bool(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self._fields == other._fields

    def __repr__(self) -> str:
        return f"FieldSet({[path_text(path) for path in self.paths()]})"

    def __contains__(self, path: Path) -> bool:
        node = self._fields
        for element in path:
            if element not in node or element == HERE:
                return False
            node = node[element]
        return bool(path) and _is_owned(node)

    def __or__(self, other: "FieldSet") -> "FieldSet":
        """Return the paths in either set."""
        if not self._fields or not other._fields:
            return self if self._fields else other
        return FieldSet(_union(self._fields, other._fields))

    def __and__(self, other: "FieldSet") -> "FieldSet":
        """Return the paths in both sets."""
        if not self._fields or not other._fields:
            return FieldSet()
        return FieldSet(_intersection(self._fields, other._fields))

    def __sub__(self, other: "FieldSet") -> "FieldSet":
        """Return the paths that are not in the other set; those below one of its paths stay."""
        if not self._fields or not other._fields:
            return self
        return FieldSet(_difference(self._fields, other._fields))

    def losing(self, lost: "FieldSet") -> "FieldSet":
        """Return the paths not in `lost`, where a leaf stands for all there ever was below it.

        What has become a leaf was a tree before, or was one under an older schema: whoever owned
        `.data.a` loses it when `.data` is set whole, while `-` would let `.data.a` stand.
        """
        if not self._fields or not lost._fields:
            return self
        return FieldSet(_loss(self._fields, lost._fields))

    def without(self, other: "FieldSet") -> "FieldSet":
        """Return the paths that are neither in `other` nor below anything in it."""
        if not self._fields or not other._fields:
            return self
        return FieldSet(_pruned(self._fields, other._fields))

    def elements(self) -> Iterable[str]:
        """Return the first elements of all paths, in order."""
        return self._fields.keys()

    def owns(self, element: str) -> bool:
        """Return whether the path of just this element is in the set."""
        return element in self._fields and _is_owned(self._fields[element])

    def below(self, element: str) -> "FieldSet":
        """Return the rest of the paths that begin with this element and go on."""
        return FieldSet(_below(self._fields.get(element, OWNED)))

    def paths(self) -> Iterator[Path]:
        """Return every path: those that end here first, then what is below, in order."""
        yield from _paths(self._fields, ())


def path_text(path: Path) -> str:
    """Return a path as messages show it: `.spec.containers[name="web"].image`."""
    return "".join(as_text(element) for element in path)


def in_order(fields: Fields) -> Fields:
    """Return the tree with its first level in written order."""
    return {element: fields[element] for element in sorted(fields)}


def owned_with(below: Fields) -> Fields:
    """Return the tree of a place that is owned itself, with what is owned below it."""
    return {HERE: OWNED, **below} if below else OWNED


def _is_owned(node: Fields) -> bool:
    return not node or HERE in node


def _below(node: Fields) -> Fields:
    """Return the node without its own mark."""
    if HERE not in node:
        return node
    return {element: inner for element, inner in node.items() if element != HERE}


def _union(left: Fields, right: Fields) -> Fields:
    """Merge two nodes; whichever is a leaf becomes the mark of the other."""
    # {} | {"f:a": {}} is {".": {}, "f:a": {}}: the place itself, and the field below it.
    if not left or not right:
        other = left or right
        return other if not other or HERE in other else {HERE: OWNED, **other}
    merged = dict(left)
    for element, inner in right.items():
        current = merged.get(element)
        merged[element] = inner if current is None else _union(current, inner)
    return merged if len(merged) == len(left) else in_order(merged)


def _difference(left: Fields, right: Fields) -> Fields | None:
    """Subtract nodes; None when nothing is left, since an empty node would be an owned leaf."""
    if not left:
        return None if _is_owned(right) else left
    # Only the elements of `right` are looked at: taking one changed field out of a set of thousands
    # copies the nodes on the way to it and shares all others.
    rest = dict(left)
    if _is_owned(right):
        rest.pop(HERE, None)
    for element, inner in right.items():
        if element != HERE and element in rest:
            _put(rest, element, _difference(rest[element], inner))
    return _settled(rest)


def _loss(left: Fields, right: Fields) -> Fields | None:
    """Subtract nodes as `_difference` does, but nothing outlives a leaf on the right."""
    if not right or not left:
        return left if right and HERE not in right else None
    rest = dict(left)
    if HERE in right:
        rest.pop(HERE, None)
    for element, inner in right.items():
        if element != HERE and element in rest:
            _put(rest, element, _loss(rest[element], inner))
    return _settled(rest)


def _intersection(left: Fields, right: Fields) -> Fields | None:
    both: Fields = {}
    if _is_owned(left) and _is_owned(right):
        both[HERE] = OWNED
    for element, inner in left.items():
        if element != HERE and element in right:
            shared = _intersection(inner, right[element])
            if shared is not None:
                both[element] = shared
    return _settled(both)


def _pruned(left: Fields, right: Fields) -> Fields | None:
    """Take out of `left` every node that `right` owns, with all that is below it."""
    if not left:
        return left
    rest = dict(left)
    for element, inner in right.items():
        if element != HERE and element in rest:
            _put(rest, element, None if _is_owned(inner) else _pruned(rest[element], inner))
    return _settled(rest)


def _put(node: Fields, element: str, inner: Fields | None) -> None:
    """Replace one part of a node that is still being made; None takes it out."""
    if inner is None:
        del node[element]
    else:
        node[element] = inner


def _settled(node: Fields) -> Fields | None:
    """Return the node in its one right form: nothing is None, and only a mark is a leaf."""
    if not node:
        return None
    return OWNED if len(node) == 1 and HERE in node else node


def _paths(node: Fields, prefix: Path) -> Iterator[Path]:
    inner = [element for element in node if element != HERE]
    yield from ((*prefix, element) for element in inner if _is_owned(node[element]))
    for element in inner:
        yield from _paths(node[element], (*prefix, element))


def _read(raw: Any) -> Fields:
    """Check a node from outside and put it into its one right form."""
    if not isinstance(raw, dict):
        raise MalformedObject("fieldsV1 holds something that is not an object")
    if _is_in_form(cast("dict[Any, Any]", raw)):
        return cast("Fields", raw)
    node: Fields = {}
    for text, inner in cast("dict[Any, Any]", raw).items():
        element = HERE if text == HERE else canonical(str(text))
        if element is not None:
            # Two texts may be one element, `v:1` and `v:1.0`: it is owned if either is.
            read = OWNED if element == HERE else _read(inner)
            node[element] = _union(node[element], read) if element in node else read
    return _settled(in_order(node)) or OWNED


def _is_in_form(raw: dict[Any, Any]) -> bool:
    """Return whether a node, and all below it, is as we write them: nearly always it is."""
    # In written order the mark comes first, for `.` sorts before the letters of path elements.
    last = ""
    for element, inner in raw.items():
        if type(element) is not str or type(inner) is not dict or element <= last:
            return False
        below = cast("dict[Any, Any]", inner)
        if below and not _is_in_form(below):
            return False
        if element == HERE:
            if below:
                return False
        elif not element.startswith(FIELD) and canonical(element) != element:
            return False
        last = element
    return len(raw) != 1 or last != HERE
