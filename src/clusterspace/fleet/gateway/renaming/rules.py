"""The table of fields that hold names, and what becomes of each on the way out and on the way in.

The table is short on purpose: whatever is changed on the way out must be undone on the way in, in
every form a client may send it back. Data of ConfigMaps and Secrets and annotations are never
touched, with one exception: the configuration `kubectl apply` remembers names its own object, and
an empty difference stays empty only if it is renamed along. Of a Table change the cell that shows
the name, and the object beside the cells.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import lru_cache
from typing import Final

import msgspec

from clusterspace.builtins import resources as builtins
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.errors import BadRequest, MalformedObject
from clusterspace.fleet.gateway import names
from clusterspace.fleet.gateway.names import HUB, Naming, Subject
from clusterspace.fleet.gateway.renaming import edits
from clusterspace.fleet.gateway.renaming.edits import Change, Edit, Fields, Tree
from clusterspace.kube.json_patches import Steps, read_pointer
from clusterspace.kube.objects import Object

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

NOT_OBJECTS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})
"""Subresources whose bodies are somebody else's bytes."""

_WHOLE_OBJECT: Final = frozenset(
    {"status", "ephemeralcontainers", "resize", "finalize", "approval"}
)
"""Subresources whose body is the whole object."""

_HUB_WORDS: Final = frozenset({HUB, names.HUB_ALIAS})


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
    ("", "pods", ""): (*_NODE_NAME, *_containers("/spec")),
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
    tree = edits.tree_of(
        (place.steps, change)
        for place in _places_of(subject)
        if _Way.OUT in place.way
        and (change := qualifier(naming, subject, is_namespace=place.content is _Content.NAMESPACE))
    )
    return _with_embedded(tree, embedded=tree)


@lru_cache(maxsize=4096)
def renamer(naming: Naming, subject: Subject) -> Callable[[Fields], Fields]:
    """Return a function that renames objects on their way to the client; cached."""
    return edits.editor_of(outward(naming, subject))


def inward(naming: Naming, subject: Subject, version_for: Change) -> Tree:
    """Return the edits of an object on its way to its cluster."""
    strict = edits.tree_of(_inward_changes(_places_of(subject), naming, version_for))
    # A copied manifest may remember being applied to another cluster; that is no contradiction.
    lenient = edits.tree_of(
        (place.steps, unqualifier(naming.cluster))
        for place in _places_of(subject)
        if place.content is not _Content.VERSION
    )
    return _with_embedded(strict, embedded=lenient)


def naming_places(subject: Subject) -> Iterator[Steps]:
    """Yield where the body of a create says what it is about; the last step says what it says."""
    yield from (("metadata", key) for key in ("name", "namespace", "generateName"))
    if subject.group == _AUTHORIZATION:
        of_kind = _OF_KIND.get((subject.group, subject.resource, subject.subresource), ())
        yield from (place.steps for place in of_kind)


def inward_delete_options(naming: Naming, version_for: Change) -> Tree:
    """Return the edits of DeleteOptions on their way to a cluster."""
    return edits.tree_of(_inward_changes(_DELETE_OPTIONS, naming, version_for))


def qualifier(naming: Naming, subject: Subject, *, is_namespace: bool = False) -> Change | None:
    """Return how names, or namespaces, become those of the fleet; None where they stay."""
    is_about_namespaces = (subject.group, subject.resource) == ("", "namespaces")
    by_name = naming.qualifies_names or (naming.qualifies_namespaces and is_about_namespaces)
    suffix = names.qualify("", naming.cluster)
    if naming.qualifies_namespaces if is_namespace else by_name:
        return lambda name: name + suffix if name else name
    if naming.qualifies_marked and not is_namespace:
        return lambda name: name + suffix if names.split(name).cluster else name
    return None


def unqualifier(cluster: str) -> Change:
    """Return how names become the cluster's own; those of other clusters stay as they are."""

    def unqualify(name: str) -> str:
        said = names.split(name)
        is_ours = said.cluster is not None and is_same_cluster(said.cluster, cluster)
        return said.name if is_ours else name

    return unqualify


def is_same_cluster(one: str, other: str) -> bool:
    """Tell whether two words mean one cluster: the hub has two."""
    return one == other or {one, other} <= _HUB_WORDS


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


def _strict_unqualifier(cluster: str, steps: Steps) -> Change:
    def unqualify(name: str) -> str:
        said = names.split(name)
        if said.cluster is None:
            return name
        if is_same_cluster(said.cluster, cluster):
            return said.name
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
            edited = edits.edit_object(written, embedded)
        except (MalformedObject, UnicodeEncodeError):
            return text  # anybody may write anything here; kubectl alone reads it
        if edited is written:
            return text
        # kubectl ends the text with a newline and compares it as a whole.
        return edited.decode() + ("\n" if text.endswith("\n") else "")

    remembered = edits.tree_of([(("metadata", "annotations", LAST_APPLIED), rewrite)])
    metadata = {**_branch(tree, "metadata"), **_branch(remembered, "metadata")}
    return {**tree, "metadata": metadata}


def _branch(tree: Tree, key: str) -> Tree:
    found = tree.get(key, {})
    return {} if callable(found) else found


def name_column(columns: Sequence[Object]) -> int | None:
    """Return which column shows the name of the object, or None."""
    found = (index for index, column in enumerate(columns) if column.get("format") == "name")
    return next(found, None)


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
    return edits.on_text(str if change is None else change)


@lru_cache(maxsize=4096)
def object_edit(naming: Naming, subject: Subject) -> Edit:
    """Return the edit of what stands beside the cells: metadata, a whole object, or nothing."""
    return edits.edit_of(outward(naming, subject))


def table_edit(naming: Naming, subject: Subject) -> Callable[[Fields], Fields]:
    """Return a function that renames the rows of a Table and leaves the rest as it is."""

    def edit(table: Fields) -> Fields:
        beside = {"object": object_edit(naming, subject)}
        # Only the first Table of a watch declares columns; custom kinds show their name first.
        text = table.get("columnDefinitions", b"null")
        declared: list[Object] = msgspec.json.decode(text, type=list[Object] | None) or []
        at = name_column(declared or own_columns(subject)) or 0
        cells = {"cells": edits.in_element(at, cell_edit(naming, subject))}
        rows = edits.in_each(edits.in_fields({**cells, **beside}))
        return edits.fields_editor({"rows": rows})(table)

    return edit
