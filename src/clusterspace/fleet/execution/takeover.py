"""May we touch what is already there, and what does a manifest make of it? Pure decisions.

    nothing is there                              create it
    it is on its way out                          wait until it is gone
    it bears the stamp of our Work or binding     update it
    it has owners, and may not be had with them   a conflict
    it is not ours, and we are told to overwrite  adopt it
    it is not ours, and may be had if it agrees   adopt it if the manifest says the same
    it is a namespace nobody asked us to own      leave it as it is, and use it
    it is not ours                                a conflict: it is not touched, and we say so

The manifest says whether to overwrite: its annotation was made from policy and template before.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, cast

from clusterspace.apis import kinds, stamps
from clusterspace.apis.differences import differences_between
from clusterspace.apis.fleet_placements import (
    APPLIED_HASH,
    CO_OWNERSHIP,
    COMPARISON,
    FULL_COMPARISON,
    IF_NO_DIFF,
    IF_NOT_DRIFTED,
    PARENT,
    PARENT_NAMESPACE,
    STEERING,
    TAKE_OVER,
    WHEN_TO_APPLY,
    is_placed,
)
from clusterspace.apis.interpreter.templates import retain
from clusterspace.apis.kinds import kind_of
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import is_built_in, normalize
from clusterspace.builtins.schemas import schema_for
from clusterspace.errors import Malformed
from clusterspace.kube.managed_fields.field_sets import FIELD, FieldSet, Path
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.managed_fields.typed_values import (
    compare,
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
    merge,
    object_schema,
    owned_fields,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupKind, GroupVersionKind
from clusterspace.kube.schemas.model import ANYTHING, Schema

OVERWRITE: Final = stamps.OVERWRITE
MANAGED: Final = "true"

_NAMESPACE: Final = GroupKind("", "Namespace")
_GIVEN: Final[Mapping[GroupKind, tuple[tuple[str, ...], ...]]] = {
    _NAMESPACE: (("spec", "finalizers"),),
    kinds.SERVICE: tuple(
        ("spec", each) for each in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    ),
    kinds.CLAIM: (("spec", "volumeName"), ("spec", "storageClassName"), ("spec", "volumeMode")),
    kinds.JOB: (("spec", "selector"), ("spec", "template", "metadata", "labels")),
}
"""Fields that clusters set in what people make."""
_OTHERS_MARKS: Final = ("kubernetes.io/", "k8s.io/", "kubernetes-fleet.io/", "karmada.io/")
"""Labels and annotations that programs set on objects, by what their keys contain."""
_OWNER_LABELS: Final = (stamps.WORK_ID, stamps.BINDING_ID, stamps.CLUSTER_BINDING_ID)
"""Labels whose values no other hub gives out, and which outlive whatever bears them."""

KEPT_COPY_OF: Final = "clusterspace.io/kept-copy-of"
"""Annotation of an object that stayed when its cluster left: the UID of its template on the hub.

The object is nobody's from then on. When the cluster joins again and is to have the same template,
it is had back without a takeover, which a placement may forbid.
"""


class TakeoverDecision(Enum):
    """The decision about the place of a manifest on the member, empty or taken."""

    CREATE = "create"
    WAIT = "wait"
    UPDATE = "update"
    ADOPT = "adopt"
    ADOPT_IF_SAME = "adopt if it says the same"
    LEAVE = "leave"
    CONFLICT = "conflict"


def decide(manifest: Object, live: Object | None) -> TakeoverDecision:
    """Decide what may be done about a manifest, seeing what is there."""
    # Two Works, or two hubs, may be meant for the same object. Whoever comes first stamps it, and
    # the stamps decide from then on, not the time: the second is told of a conflict at every look,
    # for as long as the first one's stamps are there. With `overwrite` on both sides they take it
    # from each other for ever, which cannot be decided here; the pace of repairs slows them down.
    if live is None:
        return TakeoverDecision.CREATE
    if is_being_deleted(live):
        return TakeoverDecision.WAIT
    if is_ours(manifest, live):
        return TakeoverDecision.UPDATE
    if co_owners_of(manifest, live):
        return TakeoverDecision.CONFLICT
    if annotations_of(manifest).get(stamps.CONFLICT_RESOLUTION) == OVERWRITE:
        return TakeoverDecision.ADOPT
    kept_copy_of = annotations_of(live).get(KEPT_COPY_OF)
    if kept_copy_of and not is_managed(live) and kept_copy_of == template_uid_of(manifest):
        return TakeoverDecision.ADOPT
    if annotations_of(manifest).get(TAKE_OVER) == IF_NO_DIFF:
        return TakeoverDecision.ADOPT_IF_SAME
    is_asked_for = stamps.CONFLICT_RESOLUTION in annotations_of(manifest)
    if kind_of(manifest) == _NAMESPACE and not is_asked_for:
        # Wanted for what goes into it, and not for its own sake.
        return TakeoverDecision.LEAVE
    return TakeoverDecision.CONFLICT


def co_owners_of(manifest: Object, live: Object) -> tuple[str, ...]:
    """Return who owns an object on the member, by name, where a placement will not share it."""
    if not is_placed(manifest) or annotations_of(manifest).get(CO_OWNERSHIP) == "true":
        return ()
    owners: list[Object] = metadata_of(live).get("ownerReferences") or []
    return tuple(f"{each.get('kind')} {each.get('name')}" for each in owners)


def keeps_drift(manifest: Object, live: Object) -> bool:
    """Whether an object of ours is left as somebody changed it: it was applied, and then changed.

    A manifest that was not applied yet is another matter: it overwrites whatever is there.
    """
    desired = annotations_of(manifest)
    if desired.get(WHEN_TO_APPLY) != IF_NOT_DRIFTED:
        return False
    is_applied = annotations_of(live).get(APPLIED_HASH) == desired.get(APPLIED_HASH)
    return is_applied and bool(users_differences(manifest, live))


def is_managed(live: Object) -> bool:
    """Whether an object says that some hub looks after it."""
    return labels_of(live).get(stamps.MANAGED) == MANAGED


def is_ours(manifest: Object, live: Object) -> bool:
    """Whether an object bears our own stamps, and not those of another hub or binding.

    A Work that was made anew for the same binding has another ID, and is still the same order.
    """
    if not is_managed(live):
        return False
    desired, current = labels_of(manifest), labels_of(live)
    return any(desired.get(each) and desired[each] == current.get(each) for each in _OWNER_LABELS)


def template_uid_of(manifest: Object) -> str:
    """Return the UID of the template a manifest was made of; empty if it does not say."""
    return annotations_of(manifest).get(stamps.TEMPLATE_UID, "")


_STAMP_LABELS: Final = frozenset(
    {
        PARENT,
        PARENT_NAMESPACE,
        stamps.MANAGED,
        stamps.WORK_ID,
        stamps.BINDING_ID,
        stamps.CLUSTER_BINDING_ID,
        stamps.POLICY_ID,
        stamps.CLUSTER_POLICY_ID,
    }
)
_STAMP_ANNOTATIONS: Final = frozenset(
    {
        stamps.MANAGED_LABELS_LIST,
        stamps.MANAGED_ANNOTATIONS_LIST,
        stamps.POLICY_NAMESPACE,
        stamps.POLICY_NAME,
        stamps.CLUSTER_POLICY_NAME,
        stamps.BINDING_NAMESPACE,
        stamps.BINDING_NAME,
        stamps.CLUSTER_BINDING_NAME,
        stamps.WORK_NAMESPACE,
        stamps.WORK_NAME,
        stamps.CONFLICT_RESOLUTION,
        stamps.MIGRATION,
        stamps.TEMPLATE_UID,
        stamps.TEMPLATE_GENERATION,
        *STEERING,
        APPLIED_HASH,
        KEPT_COPY_OF,
    }
)


def without_stamps(live: Object) -> Object:
    """Return an object as if no hub had ever looked after it."""
    labels = {key: value for key, value in labels_of(live).items() if key not in _STAMP_LABELS}
    annotations = {
        key: value for key, value in annotations_of(live).items() if key not in _STAMP_ANNOTATIONS
    }
    return with_metadata(live, labels=labels or None, annotations=annotations or None)


def with_stamps_of(live: Object, manifest: Object) -> Object:
    """Return an object that the hub of a manifest takes for its own: with the stamps of that."""
    labels = {key: each for key, each in labels_of(manifest).items() if key in _STAMP_LABELS}
    stamped = {
        key: each for key, each in annotations_of(manifest).items() if key in _STAMP_ANNOTATIONS
    }
    plain = without_stamps(live)
    return with_metadata(
        plain,
        labels={**labels_of(plain), **labels, stamps.MANAGED: MANAGED},
        annotations={**annotations_of(plain), **stamped},
    )


def owner_text(live: Object) -> str:
    """Return who looks after an object that is not ours, as a sentence says it."""
    if not is_managed(live):
        return "no hub manages it"
    annotations = annotations_of(live)
    work = f"{annotations.get(stamps.WORK_NAMESPACE, '')}/{annotations.get(stamps.WORK_NAME, '')}"
    return f"it is managed by Work {work} of another binding or hub"


def subject_text(manifest: Object) -> str:
    """Return kind and key of a manifest's object, as Karmada's messages name it."""
    key = f"{namespace_of(manifest)}/{name_of(manifest)}"
    return f"resource(kind={manifest.get('kind')}, {key})"


# -- what a manifest makes of an object: fields it sets, fields that go, fields that stay ------

# docs/decisions/0007-what-a-manifest-replaces.md has the reasons. A cluster notes in
# `managedFields` who set which field. Three kinds of owners matter to us:
#
#     we        set it when we last wrote the object
#     authors   own a field that the manifest sets, too: they made the object before it was ours, or
#               go on applying it to the member; their say over it is what the manifest replaces
#     others    share nothing with the manifest: injectors, autoscalers, controllers, people who
#               added something. So do fields with no owner, which admission added
#
# What we and authors set and the manifest does not is taken out; what others set stays.


FIELD_MANAGER: Final = "clusterspace-execution"
"""The name members know us by in `managedFields`: what is under it, we set."""

_METADATA: Final = "f:metadata"
_NOT_CONTENT: Final = FieldSet.of((_METADATA,), ("f:status",), ("f:apiVersion",), ("f:kind",))
"""Names and stamps have rules of their own, a status is its controllers'."""

_VOLATILE: Final = FieldSet.of(
    ("f:status",),
    *(
        (_METADATA, f"f:{name}")
        for name in ("managedFields", "resourceVersion", "generation", "creationTimestamp")
    ),
)


@dataclass(frozen=True, slots=True)
class Update:
    """The object to PUT, and the fields of the member object that this changes."""

    body: Object
    fields: FieldSet


def plan_update(manifest: Object, live: Object, retained: Object | None = None) -> Update | None:
    """Return how to bring a member object to its manifest; None when there is nothing to do.

    `retained` is the manifest with what the member keeps in it, of a kind whose own interpreter
    says what that is.
    """
    kind = GroupVersionKind.of(str(manifest.get("apiVersion")), str(manifest.get("kind")))
    schema = _schema_of(kind)
    # Whose an object is, no script decides.
    own = None if retained is None else with_stamps_of(retained, manifest)
    desired = own or retain(manifest, live)
    content = _content_of(desired)
    # The manifest over what is there, without what it has dropped. An example:
    #
    #     there          data: {color: red, size: 9, note: x, ca: pem}
    #     managedFields  we: color, size      kubectl: size, note      injector: ca
    #     manifest       data: {size: 8}
    #     sent           data: {size: 8, ca: pem}
    #
    # `color` was ours and is dropped. `size` makes kubectl an author, so its `note` goes too: the
    # manifest has taken over from it. The injector has nothing in common with us, and stays.
    # Since all of it is decided on the version that is sent along, whatever an injector adds
    # between our look and our write is a conflict, and is decided on then.
    #
    # Elements without names or with the same name cannot be matched: then the manifest's content
    # is sent as it is, and the member is to judge.
    with suppress(Malformed):
        fields = owned_fields(content, schema)
        owners = owners_of(live, fields, FIELD_MANAGER)
        # Without owners nobody knows whose anything is: the manifest is all there is.
        if owners is not None:
            merged = merge(_content_of(live), content, schema)
            removal = _Removal(fields, owners.replaced, owners.others)
            content = removal.from_map(merged, schema)
    annotations = {
        key: each for key, each in annotations_of(desired).items() if key != KEPT_COPY_OF
    }
    stamped = with_metadata(
        live, labels=dict(labels_of(desired)) or None, annotations=annotations or None
    )
    body = {
        **content,
        "metadata": stamped["metadata"],
        **({"status": live["status"]} if "status" in live else {}),
    }
    if body == live:
        return None
    changed = _difference(kind, live, body)
    return Update(body, changed) if changed else None


def users_differences(
    manifest: Object, live: Object | None, retained: Object | None = None
) -> tuple[Object, ...]:
    """Return how a member object differs from its manifest, our own marks aside.

    By the manifest's own wish also in what it does not mention: defaults, what clusters set
    themselves and the marks of Kubernetes aside.
    """
    kind = kind_of(manifest)
    if live is None:
        return differences_between(kind, None, manifest)
    bare = without_stamps(manifest)
    kept = None if retained is None else without_stamps(retained)
    if annotations_of(manifest).get(COMPARISON) == FULL_COMPARISON:
        desired = kept or retain(bare, live)
        for path in _GIVEN.get(kind, ()):
            # What a cluster gives an object that does not ask for anything is nobody's change.
            if find_at(desired, *path) is None and (given := find_at(live, *path)) is not None:
                desired = with_value(desired, given, *path)
        return differences_between(kind, _whole(live), _whole(desired, bare))
    planned = plan_update(bare, live, kept)
    if planned is None:
        return ()

    def seen(kube_object: Object) -> Object:
        content = _content_of(kube_object)
        # Labels and annotations that the manifest has; others are the member's own.
        marks: Object = {
            "labels": {k: v for k, v in labels_of(kube_object).items() if k in labels_of(bare)},
            "annotations": {
                k: v for k, v in annotations_of(kube_object).items() if k in annotations_of(bare)
            },
        }
        return {**content, "metadata": marks}

    return differences_between(kind, seen(live), seen(planned.body))


def _whole(kube_object: Object, marked_by: Object | None = None) -> Object:
    """Return all that people say in an object, defaults included; labels may be another's."""
    kind = GroupVersionKind.of(str(kube_object.get("apiVersion")), str(kube_object.get("kind")))
    marks = without_stamps(kube_object if marked_by is None else marked_by)

    def of_people(words: Mapping[str, str]) -> Object:
        return {k: v for k, v in words.items() if not any(each in k for each in _OTHERS_MARKS)}

    said = {
        "labels": of_people(labels_of(marks)),
        "annotations": of_people(annotations_of(marks)),
    }
    content = _content_of(_with_defaults(kind, kube_object) or kube_object)
    if kind_of(kube_object) == kinds.SERVICE:
        ports: list[Object] = find_at(content, "spec", "ports") or []
        bare = [{key: each for key, each in port.items() if key != "nodePort"} for port in ports]
        content = with_value(content, bare, "spec", "ports")
    return {**content, "metadata": said}


def content_difference(before: Object, after: Object) -> FieldSet:
    """Return the fields that differ between two states of an object, names and stamps aside."""
    kind = GroupVersionKind.of(str(before.get("apiVersion")), str(before.get("kind")))
    return _difference(kind, before, after).without(_NOT_CONTENT)


def leaf_paths(fields: FieldSet) -> list[Path]:
    """Return the paths with nothing below them: a changed field, not the places it is in."""
    paths = list(fields.paths())
    return [
        each for each in paths if not any(other[: len(each)] == each != other for other in paths)
    ]


@dataclass(frozen=True, slots=True)
class Owners:
    """The content of an object, divided by whose say over it counts."""

    replaced: FieldSet
    """What we set, or authors did: it goes unless the manifest sets it."""
    others: FieldSet


def owners_of(live: Object, desired: FieldSet, ourselves: str) -> Owners | None:
    """Return who owns the content of an object; None when the member kept no record.

    `desired` are the fields the manifest sets, `ourselves` is the name we write under.
    """
    entries = read_entries(raw_entries(live)).values()
    if not entries:
        return None
    replaced, others = FieldSet(), FieldSet()
    for entry in entries:
        content = entry.fields.without(_NOT_CONTENT)
        # A field in common makes an author, and so does a map at the top, such as `data`, which
        # the manager made and the manifest writes to: its keys may all differ. Deeper down a map
        # may well be an injector's that both happen to add to.
        is_author = not entry.subresource and (
            bool(content & desired) or any(content.owns(each) for each in desired.elements())
        )
        if entry.manager == ourselves or is_author:
            replaced = replaced | content
        else:
            others = others | content
    return Owners(replaced, others)


def managers_at(live: Object, path: Path) -> tuple[str, ...]:
    """Return who owns a field, or something in it, by name."""
    found: set[str] = set()
    for entry in read_entries(raw_entries(live)).values():
        around = entry.fields
        for element in path[:-1]:
            around = around.below(element)
        if _mentions(around, path[-1]):
            found.add(entry.manager)
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class _Removal:
    """The fields of the manifest, of those it replaces and of others, at one place of an object."""

    desired: FieldSet
    replaced: FieldSet
    others: FieldSet

    def below(self, element: str) -> "_Removal":
        return _Removal(
            self.desired.below(element), self.replaced.below(element), self.others.below(element)
        )

    def from_map(self, value: Object, schema: Schema) -> Object:
        """Return a map without what is ours in it and not desired; other values go whole."""
        left: Object = {}
        for name, current in value.items():
            element, inner = FIELD + name, field_schema(schema, name)
            if not _mentions(self.replaced, element):
                left[name] = current
                continue
            rest, is_desired = current, _mentions(self.desired, element)
            if is_granular_map(current, inner) and (current or is_desired):
                rest = self.below(element).from_map(cast("Object", current), inner)
                is_kept = bool(rest) or is_desired
            elif is_granular_list(current, inner) and (current or is_desired):
                rest = self.below(element).from_list(cast("list[Any]", current), inner)
                is_kept = bool(rest) or is_desired
            else:
                is_kept = is_desired or _mentions(self.others, element)
            if is_kept:
                left[name] = rest
        return left

    def from_list(self, items: list[Any], schema: Schema) -> list[Any]:
        """Return the elements that stay: they go whole, unless others have a part in them."""
        inner = item_schema(schema)
        left: list[Any] = []
        for item in items:
            element = item_element(item, schema)
            if not _mentions(self.replaced, element):
                left.append(item)
            elif _mentions(self.desired, element) or _mentions(self.others, element):
                is_map = is_granular_map(item, inner)
                left.append(self.below(element).from_map(item, inner) if is_map else item)
        return left


def _mentions(fields: FieldSet, element: str) -> bool:
    return fields.owns(element) or bool(fields.below(element))


def _content_of(kube_object: Object) -> Object:
    return {key: value for key, value in kube_object.items() if key not in ("metadata", "status")}


def _difference(kind: GroupVersionKind, before: Object, after: Object) -> FieldSet:
    """Return the fields a PUT would change; defaults it leaves out come back by themselves.

    Fields that only newer servers know have no normal form here, and are compared as they are.
    """
    old, new = _with_defaults(kind, before), _with_defaults(kind, after)
    if old is not None and new is not None:
        before, after = old, new
    found = compare(before, after, _schema_of(kind)).without(_VOLATILE)
    return found.changed | found.removed


def _with_defaults(kind: GroupVersionKind, kube_object: Object) -> Object | None:
    """Return an object in its normal form, with defaults; None when it has none here."""
    if is_built_in(kind):
        with suppress(Malformed):
            normal = normalize(kube_object, kind)
            if not normal.unknown_fields:
                return apply_defaults(kind, normal.object)
    return None


@lru_cache(maxsize=256)
def _schema_of(kind: GroupVersionKind) -> Schema:
    found = schema_for(kind.group, kind.version, kind.kind)
    return ANYTHING if found is None else object_schema(found)
