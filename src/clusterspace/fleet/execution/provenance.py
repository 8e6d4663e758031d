"""Whose an object of a member is, for people: which Work keeps it, what differs, who wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass

from clusterspace.apis import stamps
from clusterspace.apis.works import manifests_of
from clusterspace.fleet.execution.takeover import (
    FIELD_MANAGER,
    is_managed,
    is_ours,
    leaf_paths,
    managers_at,
    plan_update,
)
from clusterspace.kube.managed_fields.field_sets import path_text
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a copy that is not as the hub wants it, and who set it."""

    field: str
    managers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Who wrote to an object, and when for the last time."""

    manager: str
    time: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Whose an object of a member is."""

    summary: str
    is_copy: bool = False
    """Whether a Work of this hub keeps it."""
    is_conflict: bool = False
    """Whether a Work of this hub wants its place and does not get it."""
    work: str = ""
    """The Work that keeps it, or would."""
    made_by: tuple[str, ...] = ()
    """What made it on the member, from its own owner up."""
    differs: tuple[Difference, ...] = ()
    writes: tuple[Write, ...] = ()
    """The latest first."""


def work_key_of(live: Object) -> tuple[str, str]:
    """Return namespace and name of the Work that an object says it is from; empty if from none."""
    annotations = annotations_of(live)
    return annotations.get(stamps.WORK_NAMESPACE, ""), annotations.get(stamps.WORK_NAME, "")


def manifest_for(work: Object | None, live: Object) -> Object | None:
    """Return the manifest of a Work that is for this object."""
    named = (live.get("kind"), namespace_of(live), name_of(live))
    manifests = manifests_of(work) if work is not None else ()
    same = (m for m in manifests if (m.get("kind"), namespace_of(m), name_of(m)) == named)
    return next(same, None)


def differences(manifest: Object, live: Object) -> tuple[Difference, ...]:
    """Return where a copy is not as its manifest says, as far as that would be put back."""
    planned = plan_update(manifest, live)
    if planned is None:
        return ()
    found: list[Difference] = []
    for path in leaf_paths(planned.fields):
        managers = (each for each in managers_at(live, path) if each != FIELD_MANAGER)
        found.append(Difference(path_text(path).removeprefix("."), tuple(managers)))
    return tuple(found)


def explain_provenance(live: Object, owners: Sequence[Object], work: Object | None) -> Provenance:
    """Return whose an object is.

    `owners` are what made it on the member, its own owner first; `work` is the Work that the last
    of them, or the object itself, says it is from, or else the Work that is meant for its place.
    """
    root = owners[-1] if owners else live
    named = f"{root.get('kind')} {namespace_of(root)}/{name_of(root)}".replace(" /", " ")
    manifest = manifest_for(work, root)
    is_copy = manifest is not None and is_ours(manifest, root)
    differs = differences(manifest, root) if manifest is not None and is_copy else ()
    key = "/".join(each for each in work_key_of(root) if each)
    of_whom = "" if root is live else f"made there by {named}, which is "
    if is_copy and is_being_deleted(work or {}):
        summary = f"It is {of_whom}a copy of the hub's that is being withdrawn."
    elif is_copy:
        places = "1 place" if len(differs) == 1 else f"{len(differs)} places"
        state = f"differs from it in {places}" if differs else "is as the hub wants it"
        summary = f"It is {of_whom}the copy of {named} on the hub, and {state}."
    elif is_managed(root) and work is None:
        summary = f"It is {of_whom}marked as a copy, of Work {key}, which is not on this hub."
    elif is_managed(root):
        summary = f"It is {of_whom}a copy that another hub or binding keeps, by Work {key}."
    elif manifest is not None:
        summary = (
            "It was made on the cluster and is not the hub's, "
            "which has an object of this name for its place and leaves this one alone."
        )
    elif owners:
        summary = f"It was made on the cluster by {named}, which is not the hub's."
    else:
        summary = "It was made on the cluster, and is not the hub's."
    migration = annotations_of(root).get(stamps.MIGRATION)
    if is_copy and migration:
        summary += f" Migration {migration} took it in as it ran."
    entries = read_entries(raw_entries(live)).values()
    writes = {(each.manager, each.time or "") for each in entries if not each.subresource}
    return Provenance(
        summary=summary,
        is_copy=is_copy,
        is_conflict=manifest is not None and not is_copy,
        work=f"{namespace_of(work)}/{name_of(work)}" if work is not None else key,
        made_by=tuple(f"{each.get('kind')} {name_of(each)}" for each in owners),
        differs=differs,
        writes=tuple(Write(*each) for each in sorted(writes, key=lambda w: w[1], reverse=True)),
    )


def controller_of(live: Object) -> tuple[str, str, str] | None:
    """Return apiVersion, kind and name of what made an object and looks after it, if anything."""
    owners: list[Object] = find_at(live, "metadata", "ownerReferences") or []
    ruling = next((each for each in owners if each.get("controller")), None)
    if ruling is None:
        return None
    return str(ruling.get("apiVersion")), str(ruling.get("kind")), str(ruling.get("name"))
