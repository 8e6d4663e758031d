"""A Deployment and its ReplicaSets told apart: which is new, which are history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of, with_metadata
from clusterspace.sim.pod_states import is_ending
from clusterspace.sim.workloads.rollouts import Limits, read_limits
from clusterspace.sim.workloads.templates import HASH_LABEL, without_template_label

REVISION: Final = "deployment.kubernetes.io/revision"
_HISTORY: Final = "deployment.kubernetes.io/revision-history"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MOST: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", REVISION, _HISTORY, _DESIRED, _MOST}
)
"""Annotations that mean something else on a ReplicaSet, or nothing."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment with its ReplicaSets told apart."""

    deployment: Object
    new: Object | None
    """The one whose template is the Deployment's."""
    old: tuple[Object, ...]
    """The others, oldest revision first."""

    @property
    def wanted(self) -> int:
        """How many replicas the Deployment asks for."""
        return find_at(self.deployment, "spec", "replicas") or 0

    @property
    def limits(self) -> Limits:
        """What a rolling update must keep to."""
        return read_limits(find_at(self.deployment, "spec", "strategy"), self.wanted)

    @property
    def recreates(self) -> bool:
        """Whether the old pods must be gone before the new ones come."""
        return find_at(self.deployment, "spec", "strategy", "type") == "Recreate"

    @property
    def is_paused(self) -> bool:
        """Whether nothing is rolled out now."""
        return bool(find_at(self.deployment, "spec", "paused"))

    @property
    def everything(self) -> tuple[Object, ...]:
        """Every ReplicaSet, the new one last."""
        return self.old if self.new is None else (*self.old, self.new)


def tell_apart(deployment: Object, replica_sets: Sequence[Object]) -> Rollout:
    """Find the ReplicaSet whose template is the Deployment's."""
    template: Object = find_at(deployment, "spec", "template")
    live = sorted((each for each in replica_sets if not is_ending(each)), key=revision_of)
    new = next((each for each in live if _template_of(each) == _plain(template)), None)
    return Rollout(deployment, new, tuple(each for each in live if each is not new))


def _template_of(replica_set: Object) -> Object:
    template: Object = find_at(replica_set, "spec", "template")
    return _plain(without_template_label(template, HASH_LABEL))


def _plain(template: Object) -> Object:
    """Return a template in which a label list that is empty and one that is missing are alike."""
    metadata = {key: value for key, value in metadata_of(template).items() if value}
    return {**template, "metadata": metadata}


def revision_of(kube_object: Object) -> int:
    """Return the revision a Deployment or ReplicaSet says it is at; 0 when it says none."""
    text = annotations_of(kube_object).get(REVISION, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def replica_set_annotations(rollout: Rollout, held: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of the new ReplicaSet: the Deployment's, and its place in history."""
    copied = {
        key: value
        for key, value in annotations_of(rollout.deployment).items()
        if key not in _NOT_COPIED
    }
    newest = max((revision_of(each) for each in rollout.old), default=0)
    there = int(held.get(REVISION, "0"))
    revision = there if there > newest else newest + 1
    own = {
        REVISION: str(revision),
        _DESIRED: str(rollout.wanted),
        _MOST: str(rollout.wanted + rollout.limits.surge),
    }
    if there and there != revision:
        own[_HISTORY] = ",".join(filter(None, (held.get(_HISTORY), str(there))))
    elif _HISTORY in held:
        own[_HISTORY] = held[_HISTORY]
    return {**copied, **own}


def with_revision(rollout: Rollout) -> Object:
    """Return the Deployment with the revision its new ReplicaSet has."""
    if rollout.new is None:
        return rollout.deployment
    revision = str(replica_set_annotations(rollout, annotations_of(rollout.new))[REVISION])
    if annotations_of(rollout.deployment).get(REVISION) == revision:
        return rollout.deployment
    annotations = {**annotations_of(rollout.deployment), REVISION: revision}
    return with_metadata(rollout.deployment, annotations=annotations)
