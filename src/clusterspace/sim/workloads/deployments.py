"""ReplicaSets: as many pods as asked for. Deployments: one per template, and moves between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, Final

from clusterspace.errors import ApiError
from clusterspace.kube.conditions import Condition, is_true, remove_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_time, parse_time
from clusterspace.sim.plans import Plan, owner_reference, with_status
from clusterspace.sim.pods import (
    is_active,
    is_available,
    is_ending,
    is_ready,
    next_availability,
    phase_of,
    ready_since,
)
from clusterspace.sim.workloads.plans import (
    DEFAULT_HISTORY,
    MOST_AT_ONCE,
    amount,
    new_pod,
    template_hash,
)

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_REPLICA_FAILURE = "ReplicaFailure"


def plan_replica_set(replica_set: Object, pods: Sequence[Object], now: float) -> Plan:
    """Decide what a ReplicaSet or ReplicationController does about the pods it has."""
    active = [pod for pod in pods if is_active(pod)]
    min_ready: int = find_at(replica_set, "spec", "minReadySeconds") or 0
    template: Object = find_at(replica_set, "spec", "template") or {}
    labels = labels_of(template).items()
    present: list[Object] = find_at(replica_set, "status", "conditions") or []
    counted: Object = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels <= labels_of(pod).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, min_ready, now) for pod in active),
        "observedGeneration": metadata_of(replica_set).get("generation"),
        "conditions": remove_condition(present, _REPLICA_FAILURE).conditions,
    }
    if replica_set["kind"] == "ReplicaSet":
        counted["terminatingReplicas"] = sum(is_ending(pod) for pod in pods)
    status = with_status(replica_set, counted)
    if is_ending(replica_set):
        return Plan(status=status)
    again_after = next_availability(active, min_ready, now)
    desired: int = find_at(replica_set, "spec", "replicas") or 0
    missing = min(desired - len(active), MOST_AT_ONCE)
    if missing < 0:
        # Sorting keeps the order of equals: of two that are alike the younger goes.
        youngest_first = sorted(
            active, key=lambda pod: str(metadata_of(pod).get("creationTimestamp")), reverse=True
        )
        surplus = sorted(youngest_first, key=_usefulness)[: len(active) - desired][:MOST_AT_ONCE]
        return Plan(delete=tuple(surplus), status=status, again_after=again_after)

    def refused(error: ApiError) -> Object | None:
        # Said once: the message names a pod that has another name each time it is tried, and a
        # status that changes would bring the workload back here without a pause.
        if is_true(present, _REPLICA_FAILURE):
            return None
        failure = Condition(_REPLICA_FAILURE, "True", "FailedCreate", error.message)
        conditions = set_condition(present, failure, now).conditions
        return with_status(replica_set, {**counted, "conditions": conditions})

    create = tuple(new_pod(replica_set, template) for _ in range(missing))
    return Plan(create=create, status=status, again_after=again_after, on_refusal=refused)


def _usefulness(pod: Object) -> tuple[bool, bool, bool, int, float]:
    """Order pods by what is lost with them: those that do least for the workload first."""
    since = ready_since(pod)
    cost = annotations_of(pod).get(_DELETION_COST, "0")
    return (
        bool(find_at(pod, "spec", "nodeName")),
        phase_of(pod) == "Running",
        since is not None,
        int(cost) if cost.removeprefix("-").isdecimal() else 0,
        0.0 if since is None else -since,
    )


HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_HISTORY: Final = "deployment.kubernetes.io/revision-history"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MOST: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", REVISION, _HISTORY, _DESIRED, _MOST}
)
"""Annotations that mean something else on a ReplicaSet, or nothing."""

_DEFAULT_SHARE: Final = "25%"
_DEFAULT_DEADLINE: Final = 600


# -- how fast replicas may move from old to new: the arithmetic, alone -------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rolling update must keep to."""

    surge: int
    """How many pods there may be beyond the wanted ones."""
    unavailable: int
    """How many of the wanted ones may be missing."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """One ReplicaSet's share: how many pods it is asked for, and how many can be relied on."""

    desired: int
    available: int

    @property
    def counted(self) -> int:
        """Pods that will still be there: those about to go are not relied on."""
        return min(self.desired, self.available)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The next replica counts: of the new ReplicaSet, and of the old ones in the order given."""

    new: int
    old: tuple[int, ...]


def read_limits(strategy: dict[str, Any] | None, desired: int) -> Limits:
    """Read maxSurge and maxUnavailable for this many replicas; both zero would never move."""
    given: dict[str, Any] = (strategy or {}).get("rollingUpdate") or {}
    surge = amount(given.get("maxSurge", _DEFAULT_SHARE), desired, round_up=True)
    unavailable = amount(given.get("maxUnavailable", _DEFAULT_SHARE), desired, round_up=False)
    return Limits(surge, unavailable if surge or unavailable else 1)


def plan_sizes(desired: int, limits: Limits, new: Replicas, old: Sequence[Replicas]) -> Sizes:
    """Return how many replicas each should be asked for now; the old ones oldest first.

    Never more than `desired + surge` in all, never fewer than `desired - unavailable` that can be
    relied on.
    """
    total = new.desired + sum(each.desired for each in old)
    room = desired + limits.surge - total
    grown = min(new.desired + max(room, 0), desired)
    least = desired - limits.unavailable
    left = [each.desired for each in old]

    # First goes what is no use: pods of old ReplicaSets that are not available are missed by
    # nobody, as long as those the new one has not made available yet are not counted on.
    spare = total - least - (new.desired - new.counted)
    for index, each in enumerate(old):
        taken = min(max(spare, 0), each.desired - each.counted)
        spare -= taken
        left[index] -= taken
    # Then what can be spared of those that are.
    spare = min(grown, new.available) + sum(each.counted for each in old) - least
    for index, size in enumerate(left):
        taken = min(max(spare, 0), size)
        spare -= taken
        left[index] = size - taken
    return Sizes(grown, tuple(left))


def share_out(sizes: Sequence[int], before: Sequence[int], most: int) -> tuple[int, ...]:
    """Return sizes that add up to `most`, each as large a part of it as it was of the whole before.

    `before` is what all together were allowed when each was last sized. What is left by rounding
    goes to the first, so the largest comes first.

    >>> share_out([8, 2], before=[10, 10], most=20)
    (16, 4)
    """
    to_add = most - sum(sizes)
    added = 0
    shares: list[int] = []
    for size, whole in zip(sizes, before, strict=True):
        share = floor(size * most / whole + 0.5) - size if most and whole else -size
        bound = to_add - added
        share = min(share, bound) if to_add > 0 else max(share, bound)
        share = share if size and to_add and bound else 0
        shares.append(size + share)
        added += share
    if shares:
        shares[0] = max(0, shares[0] + to_add - added)
    return tuple(shares)


# -- a Deployment and its ReplicaSets told apart -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment with its ReplicaSets told apart."""

    deployment: Object
    new: Object | None
    """The one whose template is the Deployment's."""
    old: tuple[Object, ...]
    """The others, oldest revision first."""

    @property
    def desired(self) -> int:
        """How many replicas the Deployment asks for."""
        return find_at(self.deployment, "spec", "replicas") or 0

    @property
    def limits(self) -> Limits:
        """What a rolling update must keep to."""
        return read_limits(find_at(self.deployment, "spec", "strategy"), self.desired)

    @property
    def recreates(self) -> bool:
        """Whether the old pods must be gone before the new ones come."""
        return find_at(self.deployment, "spec", "strategy", "type") == "Recreate"

    @property
    def is_paused(self) -> bool:
        """Whether nothing is rolled out now."""
        return bool(find_at(self.deployment, "spec", "paused"))

    @property
    def min_ready(self) -> int:
        """How many seconds a pod must be ready to be relied on."""
        return find_at(self.deployment, "spec", "minReadySeconds") or 0

    @property
    def replica_sets(self) -> tuple[Object, ...]:
        """Every ReplicaSet, the new one last."""
        return self.old if self.new is None else (*self.old, self.new)


def tell_apart(deployment: Object, replica_sets: Sequence[Object]) -> Rollout:
    """Find the ReplicaSet whose template is the Deployment's."""
    template = _plain_template(deployment)
    live = sorted((each for each in replica_sets if not is_ending(each)), key=_revision_of)
    new = next((each for each in live if _plain_template(each) == template), None)
    return Rollout(deployment, new, tuple(each for each in live if each is not new))


def _plain_template(workload: Object) -> Object:
    """Return a template without the hash, in which labels that are empty and missing are alike."""
    template: Object = find_at(workload, "spec", "template")
    labels = {name: value for name, value in labels_of(template).items() if name != HASH_LABEL}
    metadata = {**metadata_of(template), "labels": labels}
    return {**template, "metadata": {key: value for key, value in metadata.items() if value}}


def _revision_of(replica_set: Object) -> int:
    """Return the revision a ReplicaSet says it is at; 0 when it says none."""
    return _number(annotations_of(replica_set).get(REVISION, "0"))


def _number(text: str) -> int:
    """Return the number an annotation has; 0 when somebody wrote something else into it."""
    return int(text) if text.isascii() and text.isdigit() else 0


def _replica_set_annotations(rollout: Rollout, current: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of the new ReplicaSet: its own, the Deployment's, its revision.

    One that was adopted may say any revision, or none: it becomes the newest.
    """
    copied = {
        key: value
        for key, value in annotations_of(rollout.deployment).items()
        if key not in _NOT_COPIED
    }
    newest = max((_revision_of(each) for each in rollout.old), default=0)
    before = _number(current.get(REVISION, "0"))
    revision = before if before > newest else newest + 1
    own = {REVISION: str(revision)}
    if before and before != revision:
        own[_HISTORY] = ",".join(filter(None, (current.get(_HISTORY), str(before))))
    return {**current, **copied, **own, **_size_annotations(rollout)}


def _size_annotations(rollout: Rollout) -> dict[str, str]:
    """Return what a ReplicaSet notes of the Deployment's size when it is given its own."""
    return {
        _DESIRED: str(rollout.desired),
        _MOST: str(rollout.desired + rollout.limits.surge),
    }


# -- what to do --------------------------------------------------------------------------------


def plan_deployment(
    deployment: Object, replica_sets: Sequence[Object], pods: Mapping[str, int], now: float
) -> Plan:
    """Decide what a Deployment does about its ReplicaSets.

    `pods` says how many pods of each, by name, are still there, those that are ending among them.
    """
    if is_ending(deployment):
        return Plan()
    rollout = tell_apart(deployment, replica_sets)
    create: tuple[Object, ...] = ()
    update: tuple[Object, ...] = ()
    if rollout.new is None and not rollout.is_paused:
        create = (_new_replica_set(rollout),)
    else:
        update = _resized(rollout, _sizes_by_name(rollout, pods))
    delete: tuple[Object, ...] = ()
    if not update and not create:
        # The ReplicaSets beyond the history that is kept.
        limit = find_at(deployment, "spec", "revisionHistoryLimit")
        empty = [
            each
            for each in rollout.old
            if not _size_of(each) and not find_at(each, "status", "replicas")
        ]
        surplus = len(empty) - (DEFAULT_HISTORY if limit is None else int(limit))
        delete = tuple(empty[: max(surplus, 0)])

    annotated = deployment
    if rollout.new is not None:
        # The revision is written with the status: that subresource counts no generation.
        revision = _replica_set_annotations(rollout, annotations_of(rollout.new))[REVISION]
        if annotations_of(deployment).get(REVISION) != revision:
            annotations = {**annotations_of(deployment), REVISION: revision}
            annotated = with_metadata(deployment, annotations=annotations)
    status = with_status(annotated, _status(rollout, now))
    if status is None and annotated is not deployment:
        status = annotated

    progressing = _last_condition(rollout, "reason", "ReplicaSetUpdated")
    again_after = None
    if progressing is not None:
        # Nothing but time tells whether a rollout that does not move is overdue.
        overdue = parse_time(str(progressing["lastUpdateTime"])) + _deadline(rollout)
        again_after = max(1.0, overdue - now)
    return Plan(create, update, delete, status=status, again_after=again_after)


def _new_replica_set(rollout: Rollout) -> Object:
    deployment = rollout.deployment
    template: Object = find_at(deployment, "spec", "template")
    digest = template_hash(template, find_at(deployment, "status", "collisionCount") or 0)
    labels = {**labels_of(template), HASH_LABEL: digest}
    selector: Object = find_at(deployment, "spec", "selector") or {}
    match: Object = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    current = sum(_size_of(each) for each in rollout.old)
    room = max(0, rollout.desired + rollout.limits.surge - current)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)}-{digest}",
            "namespace": namespace_of(deployment),
            "labels": labels,
            "annotations": _replica_set_annotations(rollout, {}),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": 0 if rollout.recreates and current else min(room, rollout.desired),
            "minReadySeconds": rollout.min_ready,
            "selector": {**selector, "matchLabels": match},
            "template": {**template, "metadata": {**metadata_of(template), "labels": labels}},
        },
    }


def _sizes_by_name(rollout: Rollout, pods: Mapping[str, int]) -> dict[str, int]:
    """Return how many replicas ReplicaSets should be asked for; those left out stay as they are."""
    # Resized: it has another size than when its ReplicaSets were given theirs.
    noted = (annotations_of(each).get(_DESIRED) for each in _running(rollout))
    is_resized = any(each is not None and _number(each) != rollout.desired for each in noted)
    if rollout.is_paused or is_resized:
        return _scaled(rollout)
    if rollout.recreates:
        # Every old pod must be gone, those that are still ending too.
        left = sum(pods.get(name_of(each), 0) for each in rollout.old)
        sizes = Sizes(0 if left else rollout.desired, (0,) * len(rollout.old))
    else:
        *old, new = [
            Replicas(_size_of(each), find_at(each, "status", "availableReplicas") or 0)
            for each in rollout.replica_sets
        ]
        sizes = plan_sizes(rollout.desired, rollout.limits, new, old)
    asked = (*sizes.old, sizes.new)
    return {name_of(each): size for each, size in zip(rollout.replica_sets, asked, strict=True)}


def _running(rollout: Rollout) -> list[Object]:
    return [each for each in rollout.replica_sets if _size_of(each)]


def _scaled(rollout: Rollout) -> dict[str, int]:
    """Return the sizes of a Deployment that is paused, or is given another size in a rollout.

    Nothing moves from the old to the new: each keeps its part of the whole.
    """
    running = _running(rollout)
    if len(running) < 2:
        only = (running or rollout.replica_sets)[-1:]
        return {name_of(each): rollout.desired for each in only}
    new = rollout.new
    if (
        new is not None
        and _size_of(new) == rollout.desired == (find_at(new, "status", "availableReplicas") or 0)
        and _number(annotations_of(new).get(_DESIRED, "")) == rollout.desired
    ):
        # A ReplicaSet that was adopted while all was well: nobody needs its pods.
        return {name_of(each): 0 for each in rollout.old if _size_of(each)}
    if rollout.recreates:
        return {}
    most = rollout.desired + rollout.limits.surge if rollout.desired else 0
    grows = most > sum(map(_size_of, running))
    # Among equals the newest grows first, and the oldest shrinks first.
    running.sort(key=lambda each: (-_size_of(each), _revision_of(each) * (-1 if grows else 1)))
    current: int = find_at(rollout.deployment, "status", "replicas") or 0
    before = [_number(annotations_of(each).get(_MOST, "")) or current for each in running]
    sizes = share_out([_size_of(each) for each in running], before, most)
    return {name_of(each): size for each, size in zip(running, sizes, strict=True)}


def _size_of(replica_set: Object) -> int:
    return find_at(replica_set, "spec", "replicas") or 0


def _resized(rollout: Rollout, sizes: Mapping[str, int]) -> tuple[Object, ...]:
    """Return the ReplicaSets that are not as they should be, as they should be."""
    changed: list[Object] = []
    for current in rollout.replica_sets:
        size = sizes.get(name_of(current), _size_of(current))
        desired = with_value(current, size, "spec", "replicas")
        if name_of(current) in sizes and (size or size != _size_of(current)):
            notes = {**annotations_of(current), **_size_annotations(rollout)}
            desired = with_metadata(desired, annotations=notes)
        if current is rollout.new and not rollout.is_paused:
            annotations = _replica_set_annotations(rollout, annotations_of(current))
            desired = with_metadata(desired, annotations=annotations)
            if (find_at(current, "spec", "minReadySeconds") or 0) != rollout.min_ready:
                desired = with_value(desired, rollout.min_ready, "spec", "minReadySeconds")
        if desired != current:
            changed.append(desired)
    return tuple(changed)


# -- what a Deployment says of itself: counts, and the conditions `rollout status` reads -------


def _status(rollout: Rollout, now: float) -> Object:
    deployment = rollout.deployment
    counted = {
        field: sum(find_at(each, "status", field) or 0 for each in rollout.replica_sets)
        for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
    }
    updated = 0 if rollout.new is None else find_at(rollout.new, "status", "replicas") or 0
    available = counted["availableReplicas"]
    status: Object = {
        **counted,
        "updatedReplicas": updated,
        "unavailableReplicas": max(0, max(rollout.desired, counted["replicas"]) - available),
        "observedGeneration": metadata_of(deployment).get("generation"),
        "collisionCount": find_at(deployment, "status", "collisionCount"),
    }
    if available >= rollout.desired - rollout.limits.unavailable:
        message = "Deployment has minimum availability."
        availability = Condition("Available", "True", "MinimumReplicasAvailable", message)
    else:
        message = "Deployment does not have minimum availability."
        availability = Condition("Available", "False", "MinimumReplicasUnavailable", message)

    current: list[Object] = find_at(deployment, "status", "conditions") or []
    conditions = current
    has_moved = _has_moved(status, deployment.get("status") or {})
    for desired in (availability, _progressing(rollout, status, has_moved, now)):
        conditions = set_condition(conditions, desired, now).conditions
    # Beside its transition, a Deployment tells when it last said something new of a condition; of
    # a rollout also when it last moved, for that is what its deadline counts from.
    last_updates = {_wording(each): each.get("lastUpdateTime") for each in reversed(current)}
    if has_moved:
        last_updates = {
            wording: None if wording[2] == "ReplicaSetUpdated" else stamp
            for wording, stamp in last_updates.items()
        }
    stamp = format_time(now)
    ours = ("Available", "Progressing")
    status["conditions"] = [
        {**each, "lastUpdateTime": last_updates.get(_wording(each)) or stamp}
        if each.get("type") in ours
        else each
        for each in conditions
    ]
    return status


def _wording(condition: Object) -> tuple[str, ...]:
    return tuple(str(condition.get(key)) for key in ("type", "status", "reason", "message"))


def _has_moved(status: Object, last: Object) -> bool:
    """Whether there is more of the new, or less of the old, than was last said."""
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    if any((status.get(each) or 0) > (last.get(each) or 0) for each in grown):
        return True
    old, was = (
        (each.get("replicas") or 0) - (each.get("updatedReplicas") or 0) for each in (status, last)
    )
    return old < was


def _progressing(rollout: Rollout, status: Object, has_moved: bool, now: float) -> Condition:
    last = _last_condition(rollout, "type", "Progressing") or {}
    if rollout.is_paused:
        message = "Deployment is paused"
        return Condition("Progressing", "Unknown", "DeploymentPaused", message)
    if rollout.new is None:
        message = f'Created new replica set for "{name_of(rollout.deployment)}"'
        return Condition("Progressing", "True", "NewReplicaSetCreated", message)
    subject = f'ReplicaSet "{name_of(rollout.new)}"'
    done = Condition(
        "Progressing", "True", "NewReplicaSetAvailable", f"{subject} has successfully progressed."
    )
    is_done = last.get("reason") == done.reason and last.get("message") == done.message
    if is_done and status["replicas"] == status["updatedReplicas"]:
        return done  # it is only given another size, which is no rollout
    counts = [status[field] for field in ("updatedReplicas", "availableReplicas", "replicas")]
    if all(count == rollout.desired for count in counts):
        return done
    is_overdue = False
    if not has_moved and last.get("message", "").startswith(subject):
        if last.get("reason") == "ProgressDeadlineExceeded":
            is_overdue = True
        elif last.get("reason") == "ReplicaSetUpdated":
            is_overdue = now - parse_time(str(last["lastUpdateTime"])) >= _deadline(rollout)
    if is_overdue:
        message = f"{subject} has timed out progressing."
        return Condition("Progressing", "False", "ProgressDeadlineExceeded", message)
    return Condition("Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.")


def _last_condition(rollout: Rollout, key: str, value: str) -> Object | None:
    conditions: list[Object] = find_at(rollout.deployment, "status", "conditions") or []
    return next((each for each in conditions if each.get(key) == value), None)


def _deadline(rollout: Rollout) -> int:
    given = find_at(rollout.deployment, "spec", "progressDeadlineSeconds")
    return _DEFAULT_DEADLINE if given is None else int(given)
