"""ControllerRevisions: the history of a StatefulSet or DaemonSet, as `rollout undo` reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
)
from clusterspace.sim.workloads.templates import owner_reference, template_hash

POD_HASH: Final = "controller-revision-hash"
_HASH: Final = "controller.kubernetes.io/hash"
_NOT_COPIED: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", "deprecated.daemonset.template.generation"}
)


@dataclass(frozen=True, slots=True)
class History:
    """The revision of the template as it is now, and what must be written to have it so."""

    current: Object
    create: tuple[Object, ...] = ()
    update: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether the current revision is stored as it should be."""
        return not self.create and not self.update


def plan_history(workload: Object, revisions: Sequence[Object], in_use: frozenset[str]) -> History:
    """Find or make the revision of a workload's template; forget what is beyond its limit."""
    ordered = sorted(revisions, key=_number)
    template: Object = find_at(workload, "spec", "template")
    newest = _number(ordered[-1]) if ordered else 0
    held = next((each for each in ordered if template_in(each) == template), None)
    if held is None:
        made = _new_revision(workload, template, newest + 1)
        return History(made, create=(made,))
    if _number(held) < newest:
        # An undo: the revision that was becomes the newest again.
        renewed = {**held, "revision": newest + 1}
        return History(renewed, update=(renewed,))
    return History(held, delete=_forgotten(workload, ordered[:-1], in_use))


def template_in(revision: Object) -> Object:
    """Return the template a revision keeps."""
    template: Object = find_at(revision, "data", "spec", "template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def _number(revision: Object) -> int:
    return int(revision.get("revision") or 0)


def _new_revision(workload: Object, template: Object, number: int) -> Object:
    digest = template_hash(template)
    annotations = {
        key: value for key, value in annotations_of(workload).items() if key not in _NOT_COPIED
    }
    metadata: Object = {
        "name": f"{name_of(workload)}-{digest}",
        "namespace": namespace_of(workload),
        "labels": {**labels_of(template), _HASH: digest, POD_HASH: digest},
        "annotations": annotations,
        "ownerReferences": [owner_reference(workload)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {key: value for key, value in metadata.items() if value},
        # kubectl sends this back as a strategic merge patch; the template replaces what is there.
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def _forgotten(
    workload: Object, older: Sequence[Object], in_use: frozenset[str]
) -> tuple[Object, ...]:
    limit = find_at(workload, "spec", "revisionHistoryLimit")
    unused = [each for each in older if name_of(each) not in in_use]
    return tuple(unused[: max(0, len(unused) - (10 if limit is None else int(limit)))])


def revision_of(pod: Object, workload: Object) -> str:
    """Return the name of the revision a pod was made from."""
    digest = labels_of(pod).get(POD_HASH, "")
    prefix = f"{name_of(workload)}-"
    # StatefulSet pods carry the revision's name, DaemonSet pods only its hash.
    return digest if digest.startswith(prefix) else f"{prefix}{digest}"
