"""Every event that Karmada's users watch for is recorded here, or the page says why it is not."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "karmada-compatibility.md"
_REASONS: Final = """
    APIIncompatible AggregateStatusFailed AggregateStatusSucceed AmbiguousSelector
    ApplyOverridePolicyFailed ApplyOverridePolicySucceed ApplyPolicyFailed ApplyPolicySucceed
    CleanupWorkFailed ClusterNotFound CollectOverallStatusFailed CollectOverallStatusSucceed
    CreateExecutionSpaceFailed CreateExecutionSpaceSucceed DependencyPolicyConflict
    DescheduleBindingFailed DescheduleBindingSucceed DispatchEndpointSliceFailed
    DispatchEndpointSliceSucceed EvictWorkloadFromClusterFailed EvictWorkloadFromClusterSucceed
    FailedComputeMetricsReplicas FailedGetBindings FailedGetScale FailedGetScaleTargetRef
    FailedGetTargetClusters FailedRescale FailedUpdateStatus GetComponentsFailed
    GetComponentsSucceed GetDependenciesFailed GetDependenciesSucceed GetReplicasFailed
    GetReplicasSucceed InterpretHealthFailed InterpretHealthSucceed InvalidSelector
    LoadCorednsConditionFailed PreemptPolicyFailed PreemptPolicySucceed ReflectStatusFailed
    ReflectStatusSucceed RemoveExecutionSpaceFailed RemoveExecutionSpaceSucceed ScaleFailed
    ScheduleBindingFailed ScheduleBindingSucceed SelectorRequired StartRuleFailed
    StoreCorednsConditionFailed SuccessfulRescale SyncDerivedServiceFailed
    SyncDerivedServiceSucceed SyncFailed SyncImpersonationConfigFailed
    SyncImpersonationConfigSucceed SyncScheduleResultToDependenciesFailed
    SyncScheduleResultToDependenciesSucceed SyncServiceFailed SyncServiceSucceed SyncSucceed
    SyncWorkFailed SyncWorkSucceed TaintClusterFailed TaintClusterSucceed
    UpdateCronFederatedHPAFailed UpdateStatusFailed WorkDispatching
"""
KARMADAS: Final = frozenset(_REASONS.split())
"""The reasons that Karmada v1.18 records."""


def rows() -> dict[str, str]:
    """Return the reasons that the page lists, each with what it says of it."""
    section = PAGE.read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| [^|]+ \| `(\w+)` \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def test_the_page_lists_every_reason_and_no_other() -> None:
    assert rows().keys() == KARMADAS


def test_what_the_page_says_is_recorded_is_in_the_code_and_what_is_left_out_is_not() -> None:
    code = "\n".join(each.read_text() for each in (ROOT / "src").rglob("*.py"))
    recorded = {reason for reason in KARMADAS if f'"{reason}"' in code}
    left_out = {reason for reason, here in rows().items() if here.startswith("left out")}
    # A reason of a condition, too.
    assert recorded - {"InvalidSelector"} == KARMADAS - left_out
