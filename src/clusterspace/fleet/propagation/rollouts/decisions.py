"""What is a new state of a template, which one a cluster gets, and whether it is well with it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from clusterspace.apis.fleet_placements import MANIFEST_HASH, generation_of
from clusterspace.apis.policies import API_VERSION as POLICY_API_VERSION
from clusterspace.apis.policies import (
    Precision,
    best_precision,
    selectors_of,
)
from clusterspace.apis.rollouts import (
    BindingRevisions,
    revisions_of,
    run_number,
)
from clusterspace.apis.staged_updates import (
    SUCCEEDED,
)
from clusterspace.apis.works import (
    APPLIED,
    UNHEALTHY,
    report_of,
    suspends_dispatching,
)
from clusterspace.errors import (
    MalformedSelector,
)
from clusterspace.fleet.propagation.placements.overrides import ClusterOverrides
from clusterspace.fleet.propagation.placements.staged_updates import (
    is_in_stage,
)
from clusterspace.fleet.propagation.templates import (
    snapshot_part,
)
from clusterspace.kube.conditions import (
    TRUE,
    find_condition,
    is_true,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
)

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_AHEAD: Final = 1000
"""By how much the run that a binding names may be newer than any there is: names that others have
taken are skipped. Whoever may write bindings must not use up the numbers."""
_NO_LABELS: Final[Mapping[str, str]] = {}


def changing_part(template: Object) -> Object:
    """Return what of a template makes a new state of it; replicas are taken out before.

    Notes of tools about the last write are not: with them, a scaled template would be a new state.
    """
    part = snapshot_part(template)
    notes = {k: v for k, v in annotations_of(part).items() if k != _LAST_APPLIED}
    metadata = {k: v for k, v in metadata_of(part).items() if k != "generation"}
    return with_metadata({**part, "metadata": metadata}, annotations=notes or None)


def overrides_about(template: Object, policies: Iterable[Object], kind: str) -> list[Object]:
    """Return the override policies that are about a template, on whatever cluster, as stored.

    One that cannot be read is among them: whoever applies it says so.
    """
    found: list[Object] = []
    for each in sorted(policies, key=name_of):
        try:
            selectors = selectors_of(each)
            is_meant = not selectors or (
                best_precision(selectors, template) is not Precision.NOT_MEANT
            )
        except MalformedSelector:
            is_meant = True
        if is_meant:
            named = {"name": name_of(each), "namespace": namespace_of(each)}
            metadata = {key: value for key, value in named.items() if value}
            stored = {"apiVersion": POLICY_API_VERSION, "kind": kind, "metadata": metadata}
            found.append({**stored, "spec": each.get("spec") or {}})
    return found


def problem_of(work: Object | None, revision: str) -> str:
    """Return why a cluster does not have a state yet, or not well; empty when it has it."""
    if work is None or is_being_deleted(work):
        return "is still to be handed to the cluster"
    if annotations_of(work).get(MANIFEST_HASH) != revision:
        return "is still to be handed to the cluster"
    if suspends_dispatching(work):
        return "waits until dispatching is no longer suspended"
    applied = find_condition(find_at(work, "status", "conditions"), APPLIED) or {}
    if applied and "observedGeneration" not in applied:
        return "is told of without a generation: by an older agent, or one that is not ours"
    if applied.get("observedGeneration") != generation_of(work):
        return "is not told of yet"
    if applied.get("status") != TRUE:
        return str(applied.get("message") or "cannot be applied")
    return "is not healthy" if report_of(work).health == UNHEALTHY else ""


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """One object on one cluster: what it is to have, what is newest, and how it is."""

    name: str
    revision: str
    latest: str
    stable: str
    find_problem: Callable[[], str]
    """Says why it is not well there. Its Work is read for that, so only who needs it asks: a run of
    a thousand clusters looks at those of the stage that it is at."""

    @property
    def problem(self) -> str:
        """Why it is not well there; empty when it is."""
        return self.find_problem()


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """A cluster that templates of a policy are on."""

    copies: tuple[StagedCopy, ...]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    is_silent: bool = False

    def is_bound(self, snapshot: str, overrides: ClusterOverrides) -> bool:
        """Whether it is to have the newest state of everything already."""
        del snapshot, overrides
        return all(each.revision == each.latest for each in self.copies)

    @property
    def is_available(self) -> bool:
        """Whether all it is to have works there."""
        return not any(each.problem for each in self.copies)

    @property
    def is_in_change(self) -> bool:
        """Whether something of it is on its way, or is broken; or some is new and some is not."""
        is_half = any(each.revision == each.latest != each.stable for each in self.copies)
        return not self.is_available or is_half

    @property
    def problem(self) -> str:
        """Why it is not well yet."""
        found = [f"{each.name} {each.problem}" for each in self.copies if each.problem]
        return found[0] if found else ""


def revision_for_newcomer(
    run: Object | None, labels: Mapping[str, str], known: BindingRevisions
) -> str:
    """Return the state for a cluster that has none: what its stage has been brought to.

    A stage that is under way has not shown yet that the newest state works; there the run takes
    the cluster on when it is its turn.
    """
    if known.latest == known.stable:
        return known.latest
    configured: list[Object] = (
        find_at(run or {}, "status", "stagedUpdateStrategySnapshot", "stages") or []
    )
    stages: list[Object] = find_at(run or {}, "status", "stagesStatus") or []
    for config, stage in zip(configured, stages, strict=False):
        if is_in_stage(config, labels):
            return known.latest if is_true(stage.get("conditions"), SUCCEEDED) else known.stable
    return known.stable


def last_number(runs: Iterable[str]) -> int:
    """Return the highest number among names of runs."""
    return max(map(run_number, runs), default=0)


def known_revisions(binding: Object, runs: Iterable[str]) -> BindingRevisions | None:
    """Read which state each cluster is to have; a run that cannot be is none."""
    found = revisions_of(binding)
    if found is None or run_number(found.run) <= last_number(runs) + _MOST_AHEAD:
        return found
    return replace(found, run="")


def has_brought(run: Object, revisions: BindingRevisions, targets: Iterable[str]) -> bool:
    """Whether a run has brought its newest state to all clusters of a binding.

    The run says so, and is believed as far as the binding agrees: whoever could write statuses of
    runs would otherwise say what is good. A cluster that nothing is decided for came after it.
    """
    is_reported = is_true(find_at(run, "status", "conditions"), SUCCEEDED)
    latest = revisions.latest
    return is_reported and all(revisions.clusters.get(each, latest) == latest for each in targets)


def at_once(strategy: Object) -> Object:
    """Return a strategy without anything to be waited for, to go back to what was good."""
    stages: list[Object] = find_at(strategy, "spec", "stages") or []
    tasks = ("beforeStageTasks", "afterStageTasks")
    bare = [{key: each for key, each in stage.items() if key not in tasks} for stage in stages]
    return with_value(strategy, bare, "spec", "stages")
