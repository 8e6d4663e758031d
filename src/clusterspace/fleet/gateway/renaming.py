"""What clusters answer, in the names that clients use: the fields that hold names, their edits.

A text is taken apart only along the way to the places that change: one level of an object becomes
a dictionary of texts, and only the texts on the way are taken apart in turn. Spaces, escapes,
numbers and the order of keys survive wherever nobody goes. What changes is said as a tree:

    {"metadata": {"name": qualified, "ownerReferences": {EACH: {"name": qualified}}}}

Decoding a whole 4 KB pod and encoding it again costs three times as much. Searching the bytes for
`"name":` is no way: labels, containers and annotations have names too.

The table of such fields is short on purpose: whatever is changed on the way out must be undone on
the way in (`inbound`), in every form a client may send it back. Data of ConfigMaps and Secrets and
annotations are never touched, with one exception: the configuration `kubectl apply` remembers names
its own object, and an empty difference stays empty only if it is renamed along. Of a Table change
the cell that shows the name, and the object beside the cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.apis.registries import CACHED_FROM
from clusterspace.builtins import resources as builtins
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.errors import BadRequest, ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.routes import MARKER, Naming, Subject, is_same_cluster, unqualifier
from clusterspace.kube.json_patches import Steps, read_pointer
from clusterspace.kube.objects import Object, find_at

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

_REMOVED: Final = object()
"""What an edit returns for a field that is not to be there."""


def removed(_text: str) -> str:
    """Stand in a tree for a field that is taken away."""
    raise AssertionError("a field that is taken away has no new text")


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
    if tree is removed:
        return lambda _text: _REMOVED
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
            if edited is _REMOVED:
                del fields[key]
                changed = True
            elif edited is not value:
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


# -- the table of fields that hold names -----------------------------------------------------------

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

NOT_OBJECTS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})
"""Subresources whose bodies are somebody else's bytes."""

_WHOLE_OBJECT: Final = frozenset(
    {"status", "ephemeralcontainers", "resize", "finalize", "approval"}
)
"""Subresources whose body is the whole object."""


class _Content(Enum):
    """What a field holds."""

    NAME = auto()
    NAMESPACE = auto()
    VERSION = auto()


class _Way(Flag):
    """Which way a field is changed."""

    OUT = auto()
    IN = auto()
    BOTH = OUT | IN


@dataclass(frozen=True, slots=True)
class _Place:
    """One field, by JSON pointer; `*` stands for each element of a list."""

    pointer: str
    content: _Content = _Content.NAME
    way: _Way = _Way.IN

    @property
    def steps(self) -> Steps:
        return read_pointer(self.pointer)


_NAME: Final = "/metadata/name"

_ALL_OBJECTS: Final = (
    _Place(_NAME, way=_Way.BOTH),
    _Place("/metadata/namespace", _Content.NAMESPACE, _Way.BOTH),
    _Place("/metadata/ownerReferences/*/name", way=_Way.BOTH),
    _Place("/metadata/resourceVersion", _Content.VERSION),
)

_DELETE_OPTIONS: Final = (_Place("/preconditions/resourceVersion", _Content.VERSION),)


def _containers(pod_spec: str) -> tuple[_Place, ...]:
    """Return where containers are named; `kubectl run` calls the first one like its object."""
    return (_Place(f"{pod_spec}/containers/*/name"),)


_PODS: Final = ("", "pods", "")
_NODE_NAME: Final = (_Place("/spec/nodeName", way=_Way.BOTH),)
_ROLE: Final = (_Place("/roleRef/name"), _Place("/subjects/*/namespace", _Content.NAMESPACE))
_REVIEW: Final = (
    _Place("/spec/resourceAttributes/name"),
    _Place("/spec/resourceAttributes/namespace", _Content.NAMESPACE),
)


def _reference(field: str) -> tuple[_Place, ...]:
    return (
        _Place(f"/{field}/name", way=_Way.BOTH),
        _Place(f"/{field}/namespace", _Content.NAMESPACE, _Way.BOTH),
    )


_EVENT: Final = (*_reference("involvedObject"), *_reference("regarding"), *_reference("related"))
_RBAC: Final = "rbac.authorization.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"

_OF_KIND: Final[Mapping[tuple[str, str, str], tuple[_Place, ...]]] = {
    _PODS: (*_NODE_NAME, *_containers("/spec")),
    ("", "pods", "binding"): (_Place("/target/name"),),
    ("", "pods", "eviction"): (
        _Place("/deleteOptions/preconditions/resourceVersion", _Content.VERSION),
    ),
    ("", "bindings", ""): (_Place("/target/name"),),
    ("", "serviceaccounts", "token"): (_Place("/spec/boundObjectRef/name"),),
    ("", "events", ""): _EVENT,
    ("events.k8s.io", "events", ""): _EVENT,
    ("autoscaling", "horizontalpodautoscalers", ""): (_Place("/spec/scaleTargetRef/name"),),
    ("batch", "jobs", ""): _containers("/spec/template/spec"),
    ("batch", "cronjobs", ""): _containers("/spec/jobTemplate/spec/template/spec"),
    (_RBAC, "rolebindings", ""): _ROLE,
    (_RBAC, "clusterrolebindings", ""): _ROLE,
    (_AUTHORIZATION, "selfsubjectaccessreviews", ""): _REVIEW,
    (_AUTHORIZATION, "localsubjectaccessreviews", ""): _REVIEW,
    (_AUTHORIZATION, "subjectaccessreviews", ""): _REVIEW,
    (_AUTHORIZATION, "selfsubjectrulesreviews", ""): (
        _Place("/spec/namespace", _Content.NAMESPACE),
    ),
}
"""By group, resource and subresource: what an object has beside its metadata."""


def outward(naming: Naming, subject: Subject) -> Tree:
    """Return the edits of an object on its way to the client; none for plain names."""
    tree = tree_of(
        (place.steps, change)
        for place in _places_of(subject)
        if _Way.OUT in place.way
        and (change := qualifier(naming, subject, is_namespace=place.content is _Content.NAMESPACE))
    )
    return _with_embedded(tree, embedded=tree)


@lru_cache(maxsize=4096)
def renamer(naming: Naming, subject: Subject) -> Callable[[Fields], Fields]:
    """Return a function that renames objects on their way to the client; cached."""
    rename = editor_of(outward(naming, subject))
    if not naming.shows_source:
        return rename
    mark = _source_mark(naming.cluster)
    return lambda fields: mark(dict(rename(fields)))


def _source_mark(cluster: str) -> Callable[[Fields], Fields]:
    """Return a function that writes into an object from which cluster it is, in an annotation.

    What is no metadata, or no annotations, is left as the cluster wrote it.
    """

    def mark(fields: Fields) -> Fields:
        text = fields.get("metadata")
        try:
            metadata: Fields = _read_fields(text) if isinstance(text, _Raw) else dict(text or {})
            own = metadata.get("annotations")
            said = bytes(own) if isinstance(own, _Raw) else b"null"
            annotations = {} if said == b"null" else _read_fields(said)
        except _NOT_THAT:
            return fields
        metadata["annotations"] = {**annotations, CACHED_FROM: cluster}
        fields["metadata"] = metadata
        return fields

    return mark


def inward(naming: Naming, subject: Subject, version_for: Change) -> Tree:
    """Return the edits of an object on its way to its cluster."""
    strict = tree_of(_inward_changes(_places_of(subject), naming, version_for))
    # A copied manifest may remember being applied to another cluster; that is no contradiction.
    lenient = tree_of(
        (place.steps, unqualifier(naming.cluster))
        for place in _places_of(subject)
        if place.content is not _Content.VERSION
    )
    tree = _with_embedded(strict, embedded=lenient)
    if not naming.shows_source:
        return tree
    # What was shown and not stored must not be stored when it is written back.
    metadata = _branch(tree, "metadata")
    annotations = {**_branch(metadata, "annotations"), CACHED_FROM: removed}
    return {**tree, "metadata": {**metadata, "annotations": annotations}}


def naming_places(subject: Subject) -> Iterator[Steps]:
    """Yield where the body of a create says what it is about; the last step says what it says."""
    yield from (("metadata", key) for key in ("name", "namespace", "generateName"))
    if (subject.group, subject.resource, subject.subresource) == _PODS:
        yield ("spec", "nodeName")
    if subject.group == _AUTHORIZATION:
        of_kind = _OF_KIND.get((subject.group, subject.resource, subject.subresource), ())
        yield from (place.steps for place in of_kind)


def inward_delete_options(naming: Naming, version_for: Change) -> Tree:
    """Return the edits of DeleteOptions on their way to a cluster."""
    return tree_of(_inward_changes(_DELETE_OPTIONS, naming, version_for))


def qualifier(naming: Naming, subject: Subject, *, is_namespace: bool = False) -> Change | None:
    """Return how names, or namespaces, become those of the fleet; None where they stay."""
    is_about_namespaces = (subject.group, subject.resource) == ("", "namespaces")
    by_name = naming.qualifies_names or (naming.qualifies_namespaces and is_about_namespaces)
    suffix = MARKER + naming.cluster
    if naming.qualifies_namespaces if is_namespace else by_name:
        return lambda name: name + suffix if name else name
    if naming.qualifies_marked and not is_namespace:
        return lambda name: name + suffix if routes.split(name).cluster else name
    return None


def _places_of(subject: Subject) -> tuple[_Place, ...]:
    subresource = "" if subject.subresource in _WHOLE_OBJECT else subject.subresource
    return _ALL_OBJECTS + _OF_KIND.get((subject.group, subject.resource, subresource), ())


def _inward_changes(
    places: tuple[_Place, ...], naming: Naming, version_for: Change
) -> Iterator[tuple[Steps, Change]]:
    for place in places:
        if place.content is _Content.VERSION:
            # Empty and "0" mean "any" to every cluster alike.
            yield place.steps, lambda text: text if text in ("", "0") else version_for(text)
        else:
            yield place.steps, _strict_unqualifier(naming.cluster, place.steps)


_POD_NAME: Final[Steps] = ("metadata", "name")


def _strict_unqualifier(cluster: str, steps: Steps) -> Change:
    def unqualify(name: str) -> str:
        said = routes.split(name)
        if said.cluster is None:
            return name
        if is_same_cluster(said.cluster, cluster):
            return said.name
        if steps == _POD_NAME and (own := routes.without_marker(name, cluster)) != name:
            return own  # made of the name of its node, which the route has followed
        place = ".".join(steps)
        raise BadRequest(
            f"{place}: {name!r} is in cluster {said.cluster}, but this request is for "
            f"cluster {cluster}"
        )

    return unqualify


def _with_embedded(tree: Tree, embedded: Tree) -> Tree:
    """Add to the tree of an object the copy of that object which `kubectl apply` keeps in it."""
    if not embedded:
        return tree

    def rewrite(text: str) -> str:
        try:
            written = text.encode()
            edited = edit_object(written, embedded)
        except (MalformedObject, UnicodeEncodeError):
            return text  # anybody may write anything here; kubectl alone reads it
        if edited is written:
            return text
        # kubectl ends the text with a newline and compares it as a whole.
        return edited.decode() + ("\n" if text.endswith("\n") else "")

    remembered = tree_of([(("metadata", "annotations", LAST_APPLIED), rewrite)])
    metadata = {**_branch(tree, "metadata"), **_branch(remembered, "metadata")}
    return {**tree, "metadata": metadata}


def _branch(tree: Tree, key: str) -> Tree:
    found = tree.get(key, {})
    return {} if callable(found) else found


_NODE_COLUMNS: Final = ("Node", "Nominated Node")


def name_column(columns: Sequence[Object]) -> int | None:
    """Return which column shows the name of the object, or None.

    Tables of Scales, as kube-apiserver makes them, call it so and do not say that it is one.
    """
    said = [index for index, column in enumerate(columns) if column.get("format") == "name"]
    called = [index for index, column in enumerate(columns) if column.get("name") == "Name"]
    return next(iter((*said, *called)), None)


def node_columns(subject: Subject, columns: Sequence[Object]) -> tuple[int, ...]:
    """Return which columns show the name of a node beside the object's own: of pods, two do."""
    if (subject.group, subject.resource) != ("", "pods"):
        return ()
    return tuple(at for at, column in enumerate(columns) if column.get("name") in _NODE_COLUMNS)


@lru_cache(maxsize=1024)
def own_columns(subject: Subject) -> tuple[Object, ...]:
    """Return the columns of a built-in kind as we print it ourselves; none for other kinds."""
    builtin = builtins.find_resource(subject.group, subject.version, subject.resource)
    if builtin is None:
        return ()
    return tuple(
        column.definition for column in printer_for(subject.group, builtin.info.kind).columns
    )


def cell_edit(naming: Naming, subject: Subject) -> Edit:
    """Return the edit of a cell that shows a name."""
    change = qualifier(naming, subject)
    return on_text(str if change is None else change)


@lru_cache(maxsize=4096)
def object_edit(naming: Naming, subject: Subject) -> Edit:
    """Return the edit of what stands beside the cells: metadata, a whole object, or nothing."""
    rename = edit_of(outward(naming, subject))
    if not naming.shows_source:
        return rename
    mark = _source_mark(naming.cluster)

    def edit(text: msgspec.Raw) -> Any:
        try:
            return mark(_read_fields(text))
        except _NOT_THAT:
            return text  # nothing stands beside the cells

    return edit


def table_edit(naming: Naming, subject: Subject) -> Callable[[Fields], Fields]:
    """Return a function that renames the rows of a Table and leaves the rest as it is."""

    def edit(table: Fields) -> Fields:
        beside = {"object": object_edit(naming, subject)}
        # Only the first Table of a watch declares columns; custom kinds show their name first.
        text = table.get("columnDefinitions", b"null")
        declared: list[Object] = msgspec.json.decode(text, type=list[Object] | None) or []
        at = name_column(declared or own_columns(subject)) or 0
        cells = {"cells": in_element(at, cell_edit(naming, subject))}
        rows = in_each(in_fields({**cells, **beside}))
        return fields_editor({"rows": rows})(table)

    return edit


# -- a whole answer --------------------------------------------------------------------------------

_CALLERS = frozenset({"users", "groups", "serviceaccounts", "uids", "userextras"})
"""What a cluster says it refuses to impersonate."""
_NAMESPACE_WORDS = frozenset({"namespaces", "Namespace"})


def rewrite_answer(body: bytes, naming: Naming, subject: Subject) -> bytes:
    """Return the answer of `naming.cluster` renamed: an object, a list, a Table, or a Status.

    Raises ClusterMisbehaved when the answer is not JSON.
    """
    if naming.is_plain or subject.subresource in NOT_OBJECTS or not body:
        return body
    try:
        fields = read_object(body)
        kind = text_at(fields, "kind")
        if kind == "Status":
            edited = _edited_status(fields, naming, subject)
        elif kind == "Table":
            edited = table_edit(naming, subject)(fields)
        elif kind.endswith("List") and "items" in fields:
            each = {EACH: outward(naming, subject)}
            edited = editor_of({"items": each})(fields)
        else:
            edited = renamer(naming, subject)(fields)
    except MalformedObject as error:
        raise ClusterMisbehaved(
            naming.cluster, f"its answer cannot be read: {error.message}"
        ) from error
    return body if edited is fields else encode(edited)


def _edited_status(fields: Fields, naming: Naming, subject: Subject) -> Fields:
    """Rename what the Status is about, and where its message says so; the rest is prose."""
    details: Any = msgspec.json.decode(fields.get("details", b"null"))
    name = find_at(details, "name")
    if find_at(details, "kind") in _CALLERS - {subject.resource}:
        return fields  # about who asks, whose name is the same in every cluster
    about_namespace = find_at(details, "kind") in _NAMESPACE_WORDS and naming.qualifies_namespaces
    change = qualifier(naming, subject, is_namespace=about_namespace)
    if change is None or not isinstance(name, str) or not name:
        return fields
    renamed = change(name)
    message = text_at(fields, "message").replace(f'"{name}"', f'"{renamed}"', 1)
    said = {"message": message} if "message" in fields else {}
    return {**fields, **said, "details": {**cast("Object", details), "name": renamed}}
