"""What planners of workloads share: pods made from templates, and ControllerRevisions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Final

import msgspec

from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
)
from clusterspace.sim.plans import owner_reference

MOST_AT_ONCE: Final = 500
"""How many pods one step creates or deletes; the next step goes on."""

DEFAULT_HISTORY: Final = 10
"""How many old revisions are kept where `revisionHistoryLimit` is not set."""


def amount(given: int | str, whole: int, *, round_up: bool) -> int:
    """Return a number, or a share such as `25%` of the whole.

    >>> amount("25%", 10, round_up=True), amount("25%", 10, round_up=False)
    (3, 2)
    """
    if isinstance(given, int):
        return given
    share = int(given.rstrip("%")) * whole / 100
    return ceil(share) if round_up else floor(share)


# -- pods of a template ------------------------------------------------------------------------

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels, so that no hash spells a word; as Kubernetes' own."""

_HASH_LENGTH: Final = 10


def template_hash(template: Mapping[str, Any], salt: int = 0) -> str:
    """Return a short name for a template: equal templates, equal names.

    The salt is a workload's collision count, which makes another name for the same template.
    """
    text = msgspec.json.encode((template, salt), order="sorted")
    number = int.from_bytes(hashlib.sha256(text).digest()[:8])
    digits: list[str] = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def new_pod(
    owner: Object,
    template: Object,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a pod of a template; without a name, the API makes one from the owner's."""
    given = metadata_of(template)
    metadata: Object = {
        "namespace": namespace_of(owner),
        "ownerReferences": [owner_reference(owner)],
        "labels": {**(given.get("labels") or {}), **(labels or {})},
    }
    metadata |= {"name": name} if name else {"generateName": f"{name_of(owner)}-"}
    all_annotations: dict[str, str] = {**(given.get("annotations") or {}), **(annotations or {})}
    if all_annotations:
        metadata["annotations"] = all_annotations
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


# -- ControllerRevisions: the history of a StatefulSet or DaemonSet ----------------------------

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


def plan_history(workload: Object, revisions: Sequence[Object], pods: Sequence[Object]) -> History:
    """Find or make the revision of a workload's template; forget what is beyond its limit.

    `rollout undo` reads these revisions. One that a pod still is of is never forgotten.
    """
    template: Object = find_at(workload, "spec", "template")
    ordered = sorted(revisions, key=_number_of)
    newest = _number_of(ordered[-1]) if ordered else 0
    current = next((each for each in ordered if template_in(each) == template), None)
    if current is None:
        digest = template_hash(template)
        metadata: Object = {
            "name": f"{name_of(workload)}-{digest}",
            "namespace": namespace_of(workload),
            "labels": {**labels_of(template), _HASH: digest, POD_HASH: digest},
            "annotations": {
                k: v for k, v in annotations_of(workload).items() if k not in _NOT_COPIED
            },
            "ownerReferences": [owner_reference(workload)],
        }
        made: Object = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {key: value for key, value in metadata.items() if value},
            # kubectl sends this back as a strategic merge patch; the template replaces the other.
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "revision": newest + 1,
        }
        return History(made, create=(made,))
    if _number_of(current) < newest:
        # An undo: the revision that was becomes the newest again.
        renewed = {**current, "revision": newest + 1}
        return History(renewed, update=(renewed,))
    in_use = {revision_of(pod, workload) for pod in pods}
    unused = [each for each in ordered[:-1] if name_of(each) not in in_use]
    limit = find_at(workload, "spec", "revisionHistoryLimit")
    surplus = len(unused) - (DEFAULT_HISTORY if limit is None else int(limit))
    return History(current, delete=tuple(unused[: max(0, surplus)]))


def _number_of(revision: Object) -> int:
    return int(revision.get("revision") or 0)


def template_in(revision: Object) -> Object:
    """Return the template a revision keeps."""
    template: Object = find_at(revision, "data", "spec", "template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def revision_of(pod: Object, workload: Object) -> str:
    """Return the name of the revision a pod was made from."""
    digest = labels_of(pod).get(POD_HASH, "")
    prefix = f"{name_of(workload)}-"
    # StatefulSet pods carry the revision's name, DaemonSet pods only its hash.
    return digest if digest.startswith(prefix) else f"{prefix}{digest}"
