"""What each condition type and each reason means, and where the code cannot be followed.

A type or reason in the sources without a sentence here fails the check, and so does a sentence
for something that no source says any more.
"""

from typing import Final

from tools.reference.condition_sites import Indirect

NOT_OURS: Final = (
    "clusterspace.kube.conditions",  # the vocabulary itself
    "clusterspace.builtins.printers",  # conditions of table rows, which nobody stores
    "clusterspace.sim",  # nodes, pods and workloads that are made up: Kubernetes' own words
    "clusterspace.testing",
)

KINDS: Final = {
    "clusterspace.builtins.definitions": "CustomResourceDefinition",
    "clusterspace.apis.interpreter.reports": "Job (a template on the hub)",
    "clusterspace.builtins.strategies": "Pod and APIService",
    "clusterspace.fleet.execution.contents": "Cluster",
    "clusterspace.fleet.execution.prune": "Cluster",
    "clusterspace.fleet.execution.report": "Work",
    "clusterspace.apiserver.identity.certificates": "CertificateSigningRequest",
    "clusterspace.apiserver.kubernetes_hub.agents": "CertificateSigningRequest",
    "clusterspace.apiserver.flow_control": "FlowSchema",
    "clusterspace.apiserver.health": "ComponentStatus",
    "clusterspace.apiserver.housekeeping": "Namespace",
    "clusterspace.apiserver.kubernetes_service": "ServiceCIDR",
    "clusterspace.apiserver.verbs.evictions": "Pod and PodDisruptionBudget",
    "clusterspace.fleet.membership.health": "Cluster",
    "clusterspace.fleet.membership.impersonation": "Cluster",
    "clusterspace.fleet.membership.member_clusters": "MemberCluster",
    "clusterspace.fleet.membership.member_clusters.agent": "InternalMemberCluster",
    "clusterspace.fleet.membership.status": "Cluster",
    "clusterspace.fleet.propagation": "ResourceBinding and ClusterResourceBinding",
    "clusterspace.fleet.propagation.placements": "Placements and their bindings",
    "clusterspace.fleet.propagation.placements.staged_updates": "Staged update runs",
    "clusterspace.fleet.propagation.placements.staged_update_runs": "Approval requests",
}
"""Whose conditions a module sets; the longest match counts."""

_FAILURES: Final = (
    "clusterspace.fleet.propagation.works.exclusive:NOT_STOPPED",
    "clusterspace.fleet.propagation.works.rendering:SYNC_FAILED",
    "clusterspace.fleet.propagation.bindings:OVERRIDE_FAILED",
    "clusterspace.fleet.propagation.works.rendering:STAYS_HOME",
    "clusterspace.apis.clusters:DELETIONS_PAUSED",
)
INDIRECT: Final[Indirect] = {
    # Templates show the conditions of their copies, which are Kubernetes' own.
    ("clusterspace.apis.interpreter.reports", "condition_type"): (),
    ("clusterspace.apis.interpreter.reports", "reason"): (),
    ("clusterspace.apiserver.flow_control", "reason"): ("Found", "NotFound"),
    ("clusterspace.builtins.definitions", "reason"): (
        "PluralConflict",
        "SingularConflict",
        "ShortNamesConflict",
        "KindConflict",
        "ListKindConflict",
    ),
    ("clusterspace.fleet.propagation.scheduler.decisions", "decision.reason.value"): (
        "clusterspace.fleet.propagation.scheduler.decisions:Reason",
    ),
    ("clusterspace.fleet.propagation.works.controller", "failures[0].reason"): _FAILURES,
    ("clusterspace.fleet.propagation.works.controller", "each.reason"): _FAILURES,
    ("clusterspace.fleet.propagation.namespaces", "each.reason"): _FAILURES,
    # These repeat the reason of a condition, which the page says once.
    ("clusterspace.fleet.membership.status", "reason"): (),
    ("clusterspace.fleet.membership.member_clusters.controller", "condition.reason"): (
        "clusterspace.fleet.membership.member_clusters.status:NOT_READY_REASON",
    ),
    ("clusterspace.fleet.membership.member_clusters.status", "reason"): (
        "clusterspace.apis.clusters:TOO_MANY_DELETIONS",
        "clusterspace.apis.clusters:DELETIONS_RESUMED",
    ),
    ("clusterspace.fleet.membership.member_clusters.controller", "reason"): (
        "clusterspace.fleet.membership.member_clusters.status:LOST",
    ),
    ("clusterspace.fleet.propagation.placements.controller", "each['reason']"): (),
    ("clusterspace.fleet.propagation.placements.staged_update_runs", "each['reason']"): (),
    ("clusterspace.fleet.propagation.placements.staged_updates", "kind"): (
        "clusterspace.apis.staged_updates:PROGRESSING",
        "clusterspace.apis.staged_updates:SUCCEEDED",
    ),
    ("clusterspace.fleet.propagation.placements.status", "each.reason"): (
        "FailedToTakeOver",
        "NotTakenOver",
        "ManifestApplyFailed",
    ),
    ("clusterspace.fleet.propagation.placements.status", "kind"): (
        "clusterspace.fleet.propagation.placements.status:ROLLOUT_STARTED",
        "clusterspace.fleet.propagation.placements.status:OVERRIDDEN",
        "clusterspace.fleet.propagation.placements.status:WORK_SYNCHRONIZED",
        "clusterspace.fleet.propagation.placements.status:AVAILABLE",
        "clusterspace.apis.works:APPLIED",
    ),
    ("clusterspace.fleet.propagation.placements.status", "reason"): (
        "ApplyFailed",
        "ApplyPending",
        "ApplySucceeded",
        "NoOverrideSpecified",
        "OverriddenFailed",
        "OverriddenPending",
        "ResourceAvailable",
        "ResourceAvailableUnknown",
        "ResourceNotAvailableYet",
        "RolloutControlledByExternalController",
        "RolloutNotStartedYet",
        "RolloutStarted",
        "RolloutStartedUnknown",
        "WorkNotSynchronizedYet",
        "WorkSynchronized",
        "WorkSynchronizedUnknown",
    ),
    # The kind of what was made, and what became of it: RoleCreated, NamespaceUpdated.
    ("clusterspace.fleet.membership.member_clusters.controller", "provision.kind + reason"): (),
}

TYPES: Final = {
    "Applied": "Whether every manifest is on the member as the hub wants it.",
    "ApprovalAccepted": "Whether the run has seen that its request was approved.",
    "ApprovalRequestApproved": "Of a task of a stage, whether somebody approved it.",
    "ApprovalRequestCreated": "Of a task of a stage, whether somebody was asked to approve it.",
    "Approved": "Whether the certificate may be signed.",
    "Available": (
        "Of an APIService, whether its group is served; of a placement, whether everything is "
        "available on its clusters."
    ),
    "Complete": "Whether the Job completed on every cluster it was placed on.",
    "CompleteAPIEnablements": "Whether all of what the cluster serves is known.",
    "Dangling": "Whether a FlowSchema names a priority level that does not exist.",
    "DeletionsPaused": (
        "Whether deletions on this cluster wait for a person to say `clusterspace resume`."
    ),
    "Denied": "Whether signing was refused.",
    "Dispatching": "Whether the Work is sent to its cluster.",
    "DisruptionAllowed": "Whether a budget lets another pod be evicted.",
    "DisruptionTarget": "The pod is about to go for a reason that is not its own.",
    "Established": "Whether the kind is served.",
    "Failed": "Whether it failed: to sign the request, or the Job on some cluster.",
    "FullyApplied": "Whether every Work of the binding is applied.",
    "Healthy": "Whether the cluster itself is well, as its agent sees it.",
    "HeartbeatReceived": "Whether the agent reports in time.",
    "ImpersonationGranted": (
        "Whether users of the hub reach the cluster under their own names; absent while they "
        "always did."
    ),
    "Initialized": "Whether it is written down which clusters a run updates in which stage.",
    "Joined": "Whether the agent says that it joined.",
    "Leaving": "What becomes of the resources on a member that leaves.",
    "NamesAccepted": "Whether no other kind has the names this one asks for.",
    "NamespaceContentRemaining": "Whether a namespace waits for objects in it.",
    "NamespaceDeletionContentFailure": "Whether an object could not be deleted.",
    "NamespaceDeletionDiscoveryFailure": "Whether a kind was not looked at.",
    "NamespaceDeletionGroupVersionParsingFailure": "Whether a kind was not read.",
    "NamespaceFinalizersRemaining": "Whether finalizers hold objects of an ending namespace.",
    "NamespacesKept": "Whether namespaces of ours stayed, for somebody's objects are in them.",
    "Overridden": "Whether overrides were made; a placement has none.",
    "PodScheduled": "Whether the Pod may be given a node; the hub runs none.",
    "Progressing": "Whether a run, or a stage of it, goes on; the reason says what it waits for.",
    "Ready": (
        "Whether the cluster answers and is well. False and Unknown keep everything where it is."
    ),
    "ReadyToJoin": "Whether the hub has made all the agent needs.",
    "RolloutStarted": (
        "Whether the newest state was rolled out; of a placement, to all its clusters."
    ),
    "Scheduled": "Whether clusters were found for the object.",
    "Started": "Of a cluster in a run, whether it is to have the run's snapshot.",
    "Succeeded": "Whether a run, a stage or a cluster of it has everything and it works.",
    "SuccessCriteriaMet": "Whether the Job reached its goal on every cluster.",
    "Terminating": "Whether the definition is being deleted, and its objects first.",
    "WaitTimeElapsed": "Of a task of a stage, whether its time is over.",
    "WorkSynchronized": "Whether every object was handed to the cluster, or to all clusters.",
    "WorksWritten": "Whether the binding's Works were written for every cluster.",
}

REASONS: Final = {
    "AfterStageTaskWaitTimeElapsed": "The time after a stage is over.",
    "AggregateStatusSucceed": "What the clusters report is on the binding, or on the template.",
    "AllWorkAreAvailable": "Every object on the cluster is available.",
    "AllWorkHaveBeenApplied": "Every object is on the cluster.",
    "AllWorkSynced": "Every object is handed to the cluster.",
    "AppliedFailed": "Some manifests could not be applied; the message names them.",
    "AppliedSuccessful": "Every manifest was applied.",
    "ApplyFailed": "Some clusters would not have some objects; see failedPlacements.",
    "ApplyInProgress": "The cluster has not told yet.",
    "ApplyOverridePolicyFailed": (
        "An override cannot be made in this object; its Work stays as it was."
    ),
    "ApplyOverridePolicySucceed": "An override policy changed the manifest for a cluster.",
    "ApplyPending": "Some clusters have not told yet.",
    "ApplyPolicyFailed": "A policy matches, and could not be applied to the template.",
    "ApplyPolicySucceed": "The template follows this policy now.",
    "ApplySucceeded": "Every cluster has every object.",
    "ApprovalRequestApprovalAccepted": "The run has seen the approval.",
    "ApprovalRequested": "A stage waits to be approved.",
    "AutoApproved": "The agent of this very cluster asks.",
    "ClusterLeaving": "The cluster is on its way out; the message says what it waits for.",
    "ClusterLeft": "The placement does not have the cluster any more; the run goes on without it.",
    "ClusterNotReachable": "No connection to the cluster.",
    "ClusterNotReady": "The cluster answers, and says that it is not well.",
    "ClusterParked": (
        "The cluster is silent; the run goes on, and the cluster is updated when it is back."
    ),
    "ClusterReady": "The cluster is well.",
    "ClusterStatusNeverUpdated": "The agent has never been heard.",
    "ClusterStatusUnknown": "The agent has not been heard for too long.",
    "ClusterUpdatingStarted": "The cluster is to have the run's snapshot.",
    "ClusterUpdatingSucceeded": "The cluster has all of the snapshot, and it is available.",
    "Complete": "Every API group was listed.",
    "Completed": "The Job completed on all clusters.",
    "CompletionsReached": "All clusters succeeded.",
    "ContentDeleted": "Everything in the namespace is deleted, or waits for its finalizers.",
    "ContentHasNoFinalizers": "What is left waits for no finalizer: pods that are stopping.",
    "CreateExecutionSpaceSucceed": "The cluster's namespace for Works was made.",
    "CredentialsRefused": "The cluster does not accept the hub's tokens.",
    "CredentialsUnusable": "The hub has no credentials for users there that it may use.",
    "DeletionsPaused": "More deletions are due than is likely meant; they wait.",
    "DependencyPolicyConflict": "Bindings that require the same object disagree about it.",
    "Dispatching": "The Work is sent.",
    "DriftRepaired": "Somebody changed the object on the member; it is as wanted again.",
    "Empty": "The cluster listed nothing at all; what was known before is kept.",
    "EvictWorkloadFromClusterCancelled": "It need not leave the cluster any more, and did not.",
    "EvictWorkloadFromClusterFailed": "It should leave the cluster, and its state is not known.",
    "EvictWorkloadFromClusterStarted": "It is to leave a cluster whose taints are not tolerated.",
    "EvictWorkloadFromClusterSucceed": "What replaces it is healthy, or had time enough: it goes.",
    "EvictWorkloadFromClusterSuspended": "It would leave; the controllers suspect themselves.",
    "ExclusiveCopyNotStopped": "A copy of what must not run twice may still run elsewhere.",
    "EvictionByEvictionAPI": "Somebody asked for the pod's eviction.",
    "FailedToTakeOver": "The object is somebody else's, or says something else than ours.",
    "ForeignObjects": "Objects that this hub did not place keep a namespace, or may.",
    "Found": "The priority level that a FlowSchema names exists.",
    "FullyAppliedFailed": "Some Works are not applied.",
    "FullyAppliedSuccess": "All Works are applied.",
    "GetDependenciesSucceed": "What the template needs is known.",
    "GetReplicasSucceed": "How many replicas the template asks for is known.",
    "Granted": "Users of the hub reach the cluster.",
    "HeartbeatLost": "The agent has not been heard for one and a half periods.",
    "HeartbeatReceived": "The agent reports in time.",
    "HubSuspectsItself": (
        "Most of the fleet fell silent at once: the hub marks nobody, for the fault is "
        "likely its own."
    ),
    "InitialNamesAccepted": "The names are accepted, and the kind is served.",
    "InstanceDeletionCompleted": "All objects of the kind are gone.",
    "InstanceDeletionInProgress": "The objects of the kind are being deleted.",
    "InstanceDeletionPending": "The objects of the kind are about to be deleted.",
    "InsufficientPods": "No more pods may be evicted than have been.",
    "InternalMemberClusterFailedToLeave": "The agent could not leave; the message says why.",
    "InternalMemberClusterHealthy": "The cluster is well.",
    "InternalMemberClusterJoined": "The agent joined.",
    "InternalMemberClusterLeft": "The agent left.",
    "InternalMemberClusterUnhealthy": "The cluster is not well.",
    "InterpretHealthSucceed": "The object on the member is judged healthy or not.",
    "InvalidResourceSelector": "A selector of the policy names a kind that cannot be propagated.",
    "InvalidResourceSelectors": "What the placement selects cannot be told; nothing new is placed.",
    "JobFailed": "The Job failed on the clusters the message names.",
    "KeepingResources": "What was placed on the member stays there.",
    "KindConflict": "Another definition has this kind.",
    "LateWriteRemoved": "A write came after its Work was withdrawn; the object is removed again.",
    "ListKindConflict": "Another definition has this list kind.",
    "Local": "The group is served by the hub itself.",
    "ManifestApplyFailed": "The cluster refused the object; the message says why.",
    "MemberClusterForceLeft": "The agent did not answer in time, and was given up.",
    "MemberClusterJoinStateUnknown": (
        "The agent has not said that it joined, or may not join; the message says which."
    ),
    "MemberClusterJoined": "The member joined.",
    "MemberClusterLeaving": "The member is on its way out.",
    "MemberClusterLeft": "The member left.",
    "MemberClusterNotReadyToJoin": "Something the agent needs could not be made.",
    "MemberClusterReadyToJoin": "The hub has made all the agent needs.",
    "NamespaceKept": "A namespace stays on the member; the message names what keeps it.",
    "NoClusterFit": "No cluster passed the filters; the message counts the reasons.",
    "NoConflicts": "Nobody else has these names.",
    "NoOverrideSpecified": "There are no overrides.",
    "NotAccepted": "Some names belong to another kind.",
    "NotAllWorkAreAvailabilityTrackable": (
        "Every object is there; some cannot tell whether they are available."
    ),
    "NotAllWorkAreAvailable": "Some objects on the cluster are not available yet.",
    "NotAllWorkHaveBeenApplied": "The cluster would not have some objects.",
    "NotAllowed": "Whoever asks may not have this certificate.",
    "NotFound": "The priority level that a FlowSchema names does not exist.",
    "NotPermitted": "The cluster does not let the hub speak for its users; the message says why.",
    "NotTakenOver": "An object is there already, and the placement never takes over.",
    "OverriddenFailed": "An override could not be made.",
    "OverriddenPending": "Overrides are still being made.",
    "ParsedGroupVersions": "Every kind was read.",
    "Partial": "Some API groups could not be listed; what was known of them is kept.",
    "PluralConflict": "Another definition has this plural name.",
    "PreemptPolicySucceed": "A policy took the template from another one.",
    "PropagationForbidden": (
        "The object may not leave the hub, or not by this binding; what is placed stays."
    ),
    "ReCreateSuccessful": "The object was deleted on the member, and made again.",
    "ReflectStatusSucceed": "The status of the object on the member is on its Work.",
    "RemoveExecutionSpaceSucceed": "The cluster has left, and its namespace on the hub is gone.",
    "RemovingResources": "What was placed on the member will be removed.",
    "RescheduleTriggered": "A WorkloadRebalancer has it placed anew.",
    "ResourceAvailable": "Everything is available on every cluster.",
    "ResourceAvailableUnknown": "Some clusters have not told whether everything is available.",
    "ResourceNotAvailableYet": "Something is not available yet; the message says what and where.",
    "ResourcesDiscovered": "Every kind was looked at.",
    "Resumed": "A person said that deletions go on.",
    "RolloutControlledByExternalController": (
        "The strategy is External: nothing is rolled out here."
    ),
    "RolloutNotStartedYet": "The cluster waits until enough others are available.",
    "RolloutStarted": "The newest state is rolled out.",
    "RolloutStartedUnknown": "Nothing is known yet of some clusters.",
    "ScheduleBindingFailed": "No clusters were found.",
    "ScheduleBindingSucceed": "Clusters were found.",
    "ScheduleFailed": "A cluster that is asked for was not found; the message says why.",
    "Scheduled": "The cluster is picked.",
    "SchedulerError": "The placement cannot be carried out as it is written.",
    "SchedulingGated": "The Pod names gates that nobody has lifted yet.",
    "SchedulingPolicyFulfilled": "The placement has the clusters it asks for.",
    "SchedulingPolicyUnfulfilled": "Clusters are missing; the message says why others do not do.",
    "Seen": "A person said `clusterspace resume` since.",
    "ShortNamesConflict": "Another definition has one of these short names.",
    "SignerValidationFailure": "The request asks for what this signer does not sign.",
    "SingularConflict": "Another definition has this singular name.",
    "SomeFinalizersRemain": "The message names the finalizers and how many objects have them.",
    "SomeResourcesRemain": "The message names the resources and how many objects are left.",
    "StageTaskApprovalRequestApproved": "Somebody approved the stage.",
    "StageTaskApprovalRequestCreated": "Somebody was asked to approve the stage.",
    "StageUpdatingSkippedNoClusters": "No cluster is in the stage.",
    "StageUpdatingStarted": "Clusters of the stage are being updated.",
    "StageUpdatingStopped": "The run was told to stop, and nothing is on its way.",
    "StageUpdatingStopping": "The run was told to stop; clusters that began are being updated.",
    "StageUpdatingSucceeded": "Every cluster of the stage is updated, and its tasks are done.",
    "StageUpdatingWaiting": "The stage waits for an approval, or for time to pass.",
    "StatusCollectionFailed": (
        "The cluster could not be asked: its credentials are missing or do not work."
    ),
    "Success": "Clusters were found.",
    "SuspendDispatching": "Dispatching is suspended; the member keeps what it has.",
    "SyncFailed": "The object could not be applied on the member.",
    "SyncImpersonationConfigFailed": "Users do not reach the cluster; the message says why.",
    "SyncImpersonationConfigSucceed": "Users reach the cluster, or were just given the right to.",
    "SyncScheduleResultToDependenciesSucceed": "What the template needs goes where it goes.",
    "SyncSucceed": "The object was applied on the member.",
    "SyncWorkFailed": "A Work could not be written.",
    "SyncWorkSucceed": "The Works are written.",
    "TaintClusterFailed": "A policy asks for taints that are not set; the message says why.",
    "TaintClusterSucceed": "The cluster's taints follow its conditions.",
    "TooManyDeletions": (
        "More objects are to go within ten minutes, though nobody deleted their templates, than "
        "`--deletion-budget` permits."
    ),
    "Unschedulable": "The clusters that fit have too little room together.",
    "UpdateRunFailed": "The run ended before it was through; what it changed stays.",
    "UpdateRunInitializedFailed": "The run cannot be; the message says why. Make another.",
    "UpdateRunInitializedSuccessfully": "The stages of the run are written down.",
    "UpdateRunProgressing": "Clusters are being updated.",
    "UpdateRunStopped": "The run was told to stop, and nothing is on its way.",
    "UpdateRunStopping": "The run was told to stop; clusters that began are being updated.",
    "UpdateRunStuck": "A cluster has not become available for five minutes, or most are silent.",
    "UpdateRunSucceeded": "Every cluster is updated; those parked get it when they are back.",
    "UpdateRunWaiting": "A stage waits for an approval, or for time to pass.",
    "WorkDispatching": "The Work is sent to the member, or is held back from now on.",
    "WorkNotSynchronizedYet": "Some objects are still to be handed to the cluster.",
    "WorkSynchronized": "Every object is handed to every cluster.",
    "WorkSynchronizedUnknown": "Nothing is known yet of some clusters.",
}
