"""FieldSet: which fields somebody owns.

A set is held in the form `fieldsV1` writes it: a tree of path elements where `{}` is an owned
leaf and `.` marks a place that is owned beside what is below it.

    {"f:spec": {"f:replicas": {}, "f:ports": {".": {}, "v:80": {}}}}

Reading one costs a check, writing one costs nothing, and taking a small set out of a large one
touches only the small one: all of which happens on every write to every object.
Every tree is in sorted order and is never edited, so sets share their parts.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields import path_elements

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
            union = union | cls(_chain(path))
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
        """Return what is in either."""
        if not self._fields or not other._fields:
            return self if self._fields else other
        return FieldSet(_union(self._fields, other._fields))

    def __and__(self, other: "FieldSet") -> "FieldSet":
        """Return what is in both."""
        if not self._fields or not other._fields:
            return FieldSet()
        return FieldSet(_intersection(self._fields, other._fields))

    def __sub__(self, other: "FieldSet") -> "FieldSet":
        """Return what is here and not there; what lies below a path given there stays."""
        if not self._fields or not other._fields:
            return self
        return FieldSet(_difference(self._fields, other._fields))

    def losing(self, lost: "FieldSet") -> "FieldSet":
        """Return what is not in `lost`, where a leaf stands for all there ever was below it.

        What has become a leaf was a tree before, or was one under an older schema.
        """
        if not self._fields or not lost._fields:
            return self
        return FieldSet(_loss(self._fields, lost._fields))

    def without(self, other: "FieldSet") -> "FieldSet":
        """Return what is neither in `other` nor below anything in it."""
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
    return "".join(path_elements.as_text(element) for element in path)


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


def _chain(path: Path) -> Fields:
    tree: Fields = OWNED
    for element in reversed(path):
        tree = {element: tree}
    return tree


def _union(left: Fields, right: Fields) -> Fields:
    """Merge two nodes; whichever is a leaf becomes the mark of the other."""
    if not left or not right:
        other = left or right
        return other if not other or HERE in other else {HERE: OWNED, **other}
    merged = dict(left)
    for element, inner in right.items():
        held = merged.get(element)
        merged[element] = inner if held is None else _union(held, inner)
    return merged if len(merged) == len(left) else in_order(merged)


def _difference(left: Fields, right: Fields) -> Fields | None:
    """Subtract nodes; None when nothing is left, since an empty node would be an owned leaf."""
    if not left:
        return None if _is_owned(right) else left
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
        element = HERE if text == HERE else path_elements.canonical(str(text))
        if element is not None:
            read = OWNED if element == HERE else _read(inner)
            node[element] = _union(node[element], read) if element in node else read
    return _settled(in_order(node)) or OWNED


def _is_in_form(raw: dict[Any, Any]) -> bool:
    """Return whether a node, and all below it, is as we write them: nearly always it is."""
    last = ""
    for element, inner in raw.items():
        if type(element) is not str or type(inner) is not dict or element <= last:
            return False
        below = cast("dict[Any, Any]", inner)
        if below and not _is_in_form(below):
            return False
        if not element.startswith(path_elements.FIELD) and not _is_canonical(element, below):
            return False
        last = element
    return len(raw) != 1 or last != HERE


def _is_canonical(element: str, inner: object) -> bool:
    return not inner if element == HERE else path_elements.canonical(element) == element
