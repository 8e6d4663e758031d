"""The Works there should be and the Works there are, to what has to be written."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORK_FINALIZER
from clusterspace.apis.works import (
    binding_key_of,
    cluster_of,
    manifests_of,
    preserves_resources,
)
from clusterspace.controllers.finalizers import is_being_deleted, with_finalizer
from clusterspace.fleet.propagation.works.rendering import NOTES, Outline, new_work
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    metadata_of,
    uid_of,
    with_metadata,
    with_value,
)

NewId = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Change:
    """A Work as it should be, and as it is; `before` is None for one that is not there."""

    after: Object
    before: Object | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write."""
        return self.after != self.before


def plan_works(
    wanted: Iterable[Outline], present: Mapping[str, Object], new_id: NewId
) -> tuple[Change, ...]:
    """Compare the Works that are called for with those there are; `present` is by cluster.

    A Work that is on its way out is waited for, and made anew when it is gone.
    """
    changes = (
        plan_change(outline, present.get(outline.cluster), new_id)
        for outline in wanted
        if not is_being_deleted(present.get(outline.cluster, {}))
    )
    return tuple(change for change in changes if change.is_needed)


def plan_change(outline: Outline, present: Object | None, new_id: NewId) -> Change:
    """Return the Work as it should be: our fields in it, the marks of others left alone."""
    if present is None:
        return Change(new_work(outline, new_id()))
    wanted = new_work(outline, labels_of(present)[stamps.WORK_ID])
    kept = {key: held for key, held in annotations_of(present).items() if key not in NOTES}
    owners = metadata_of(wanted).get("ownerReferences")
    changed = with_metadata(
        with_finalizer(present, WORK_FINALIZER),
        labels={**labels_of(present), **labels_of(wanted)},
        annotations={**kept, **annotations_of(wanted)} or None,
        **({"ownerReferences": owners} if owners else {}),
    )
    return Change({**changed, "spec": wanted["spec"]}, present)


def is_free_for(work: Object, template: Object) -> bool:
    """Whether a Work holds just this template, and no binding has it."""
    held = [annotations_of(each).get(stamps.TEMPLATE_UID) for each in manifests_of(work)]
    return not binding_key_of(work) and held == [uid_of(template)]


def find_orphans(present: Iterable[Object], kept: frozenset[str]) -> tuple[Object, ...]:
    """Return the Works in clusters that are not to have the object, and nobody deleted yet."""
    return tuple(
        work for work in present if cluster_of(work) not in kept and not is_being_deleted(work)
    )


def plan_farewell(work: Object, *, is_preserved: bool) -> Change:
    """Return the Work as it must be before it is deleted: it says what the cluster keeps.

    Whether members keep their objects may have been decided only just now; a Work that is deleted
    without knowing takes them along.
    """
    if preserves_resources(work) == is_preserved:
        return Change(work, work)
    return Change(with_value(work, is_preserved, "spec", "preserveResourcesOnDeletion"), work)
