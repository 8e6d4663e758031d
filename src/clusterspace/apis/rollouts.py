"""Staged rollouts of policies: what a policy asks for, and where each binding stands in it.

    policy.spec.rollout ──> binding.spec.rollout       which strategy; written by the detector
                            binding.spec.revisions     which state each cluster is to have
                              └─> ResourceSnapshot     that state: the template, its overrides
    policy ──owns──> StagedUpdateRun                   how far a change has come, stage by stage

All of this is ours: Karmada's policies reach every cluster at once. Strategies, runs and requests
for approval are KubeFleet's kinds (apis/staged_updates.py), and so are snapshots.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.apis import policies, stamps
from clusterspace.apis.fleet_placements import API_VERSION, CLUSTER_WIDE, NAMESPACED, digest_of
from clusterspace.apis.staged_updates import RUN, staged_scope_at
from clusterspace.apis.works import controller_uid_of
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionResource

ROLLED_OUT: Final = "RolledOut"
"""Condition of a binding: whether every cluster has the newest state of the template."""

ROLLBACK: Final = "clusterspace.io/rollback"
"""Annotation of a run, for people: `true` when it brings back what every cluster had before."""

PROGRESS_DEADLINE_SECONDS: Final = 300
"""After which a cluster that does not get well is reported, unless the policy says otherwise."""

_REVISION_LENGTH: Final = 16
_LONGEST_NAME: Final = 200
_LONGEST_RUN: Final = 40
_DIGEST_LENGTH: Final = 8
_MOST_DIGITS: Final = 12
"""With which the longest name of a run still is a label."""


# -- what a policy says ----------------------------------------------------------------------------


def strategy_name_of(holder: Object) -> str:
    """Return which strategy a policy or a binding names; empty when nothing is staged."""
    return str(find_at(holder, "spec", "rollout", "strategyName") or "")


def deadline_of(policy: Object) -> float:
    """Return after how many seconds a cluster that does not get well is reported."""
    seconds = find_at(policy, "spec", "rollout", "progressDeadlineSeconds")
    return float(PROGRESS_DEADLINE_SECONDS if seconds is None else seconds)


# -- which state each cluster is to have -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindingRevisions:
    """Which states of its template a binding brings where."""

    latest: str
    """The newest state."""
    stable: str
    """The last one that went through every stage; what a cluster gets that has nothing yet."""
    clusters: Mapping[str, str] = field(default_factory=dict[str, str])
    run: str = ""
    """The name of the run that brings the newest state to everybody; empty for the first one."""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the snapshot of each state said when it was stored: `content_digest` of it."""

    @property
    def in_use(self) -> frozenset[str]:
        """Every state that is needed still."""
        return frozenset({self.latest, self.stable, *self.clusters.values()})

    def of(self, cluster: str) -> str:
        """Return the state a cluster is to have; empty when that is not decided yet."""
        return self.clusters.get(cluster) or (self.stable if self.latest == self.stable else "")

    def is_settled(self, targets: Iterable[str]) -> bool:
        """Whether there is only one state, and all of these clusters are to have it."""
        are_through = all(self.of(each) == self.latest for each in targets)
        return self.latest == self.stable and are_through


def revisions_of(binding: Object) -> BindingRevisions | None:
    """Read which state each cluster is to have; None when nobody has said so yet."""
    found: Object = find_at(binding, "spec", "revisions") or {}
    if not found.get("latest") or not found.get("stable"):
        return None
    entries: list[Object] = found.get("clusters") or []
    stored: list[Object] = found.get("digests") or []
    return BindingRevisions(
        latest=str(found["latest"]),
        stable=str(found["stable"]),
        clusters={str(each.get("name")): str(each.get("revision")) for each in entries},
        run=str(found.get("run") or ""),
        digests={str(each.get("revision")): str(each.get("digest")) for each in stored},
    )


def with_revisions(binding: Object, revisions: BindingRevisions) -> Object:
    """Return a binding that says which state each cluster is to have."""
    written: Object = {
        "latest": revisions.latest,
        "stable": revisions.stable,
        "run": revisions.run,
        "clusters": [
            {"name": name, "revision": each} for name, each in sorted(revisions.clusters.items())
        ],
        "digests": [
            {"revision": name, "digest": each} for name, each in sorted(revisions.digests.items())
        ],
    }
    kept = {key: value for key, value in written.items() if value}
    return with_value(binding, kept, "spec", "revisions")


def without_revisions(binding: Object) -> Object:
    """Return a binding whose clusters all have the template as it is."""
    return without_value(binding, "spec", "revisions")


# -- states, stored --------------------------------------------------------------------------------


def snapshots_for(namespace: str) -> GroupVersionResource:
    """Return what the states of templates in a namespace, or in none, are stored as."""
    return (NAMESPACED if namespace else CLUSTER_WIDE).resource_snapshots


def revision_name(binding: str, revision: str) -> str:
    """Return the name of the snapshot of one state of a binding's template."""
    return f"{binding[:_LONGEST_NAME]}-{revision}"


def revision_in(content: Any) -> str:
    """Return what a state is called: it changes with everything it says."""
    return digest_of(content)[:_REVISION_LENGTH]


def content_digest(snapshot: Object) -> str:
    """Return what a snapshot says, as a text that changes with all of it.

    Its name does not: replicas, and notes of tools, are no part of which state it is.
    """
    return digest_of(find_at(snapshot, "spec", "selectedResources") or [])


def new_snapshot(
    binding: Object, revision: str, template: Object, overrides: Iterable[Object]
) -> Object:
    """Return the snapshot of a template and of what overrides it; it goes with its binding."""
    namespace = namespace_of(binding)
    label = stamps.BINDING_ID if namespace else stamps.CLUSTER_BINDING_ID
    metadata: Object = {
        "name": revision_name(name_of(binding), revision),
        **({"namespace": namespace} if namespace else {}),
        "labels": {label: labels_of(binding).get(label, "")},
        "ownerReferences": [
            {
                "apiVersion": binding.get("apiVersion"),
                "kind": binding.get("kind"),
                "name": name_of(binding),
                "uid": uid_of(binding),
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSnapshot" if namespace else "ClusterResourceSnapshot",
        "metadata": metadata,
        "spec": {"selectedResources": [template, *overrides]},
    }


# -- runs ------------------------------------------------------------------------------------------


def policy_key_of(run: Object) -> str:
    """Return the key of the policy that a run is of; empty for a run of a placement."""
    owners: list[Object] = metadata_of(run).get("ownerReferences") or []
    for each in owners:
        is_policy = str(each.get("apiVersion")).partition("/")[0] == policies.GROUP
        if is_policy and each.get("controller") is True:
            name, namespace = str(each.get("name")), namespace_of(run)
            return f"{namespace}/{name}" if namespace else name
    return ""


def is_run_of(run: Object, policy: Object) -> bool:
    """Whether a run is of this policy, and not of an earlier one of its name."""
    is_named = policy_key_of(run).rpartition("/")[2] == name_of(policy)
    return is_named and controller_uid_of(run) == uid_of(policy)


def run_name(policy: str, number: int) -> str:
    """Return the name of a policy's run; a label has to have room for it."""
    if len(policy) > _LONGEST_RUN:
        policy = f"{policy[:_LONGEST_RUN]}-{digest_of(policy)[:_DIGEST_LENGTH]}"
    return f"{policy}-{number}"


def run_number(run: str) -> int:
    """Return the how manieth run of its policy one is, by its name; 0 when it does not say.

    Anybody's word: who may write bindings or runs names them.
    """
    text = run.rpartition("-")[2]
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def new_run(policy: Object, name: str, *, is_rollback: bool) -> Object:
    """Return a run of a policy, that begins at once and goes with its policy."""
    namespace = namespace_of(policy)
    return {
        "apiVersion": API_VERSION,
        "kind": staged_scope_at(namespace).run,
        "metadata": {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            **({"annotations": {ROLLBACK: "true"}} if is_rollback else {}),
            "ownerReferences": [
                {
                    "apiVersion": policies.API_VERSION,
                    "kind": str(policy.get("kind")),
                    "name": name_of(policy),
                    "uid": uid_of(policy),
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "placementName": name_of(policy),
            "stagedRolloutStrategyName": strategy_name_of(policy),
            "state": RUN,
        },
    }
