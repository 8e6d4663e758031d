"""What our kinds and their fields mean, for docs/reference/api.md.

The definitions themselves carry no descriptions: their fields are Karmada's, KubeFleet's and SIG
Multicluster's. What is said here is what happens *here*. A field that is not in these tables is
shown with its type alone; one that no definition has fails a test.
"""

from collections.abc import Mapping
from typing import Final

GroupKind = tuple[str, str]

_KARMADAS_POLICY: Final = "policy.karmada.io"
_KARMADAS_WORK: Final = "work.karmada.io"
_PLACEMENT: Final = "placement.kubernetes-fleet.io"
_MEMBERS: Final = "cluster.kubernetes-fleet.io"

ACTED_ON: Final[Mapping[GroupKind, str]] = {
    ("access.clusterspace.io", "ClusterConsumer"): (
        "A program that is told of clusters in its namespace, with credentials that end."
    ),
    ("autoscaling.karmada.io", "FederatedHPA"): (
        "Scales a template by the load of its pods in all clusters together."
    ),
    ("autoscaling.karmada.io", "CronFederatedHPA"): (
        "Scales a template, or the bounds of a FederatedHPA, at set times."
    ),
    ("cluster.karmada.io", "Cluster"): (
        "A member: where it is, how it is reached, and what it reported last. `clusterspace join` "
        "and the agent of a registered cluster write it."
    ),
    (_KARMADAS_POLICY, "PropagationPolicy"): (
        "Says which templates of its namespace go to which clusters, and how."
    ),
    (_KARMADAS_POLICY, "ClusterPropagationPolicy"): (
        "The same for templates of every namespace, and for those without one."
    ),
    (_KARMADAS_POLICY, "OverridePolicy"): (
        "Says what is changed in templates of its namespace on the way to some clusters."
    ),
    (_KARMADAS_POLICY, "ClusterOverridePolicy"): (
        "The same for templates of every namespace, and for those without one; it is applied "
        "before those of the namespace."
    ),
    (_KARMADAS_WORK, "ResourceBinding"): (
        "One template and the clusters chosen for it. The controllers write it; look at it to see "
        "what was decided."
    ),
    (_KARMADAS_WORK, "ClusterResourceBinding"): "The same for a template without a namespace.",
    (_KARMADAS_POLICY, "ClusterTaintPolicy"): (
        "Says which taints clusters get, and lose, by what their conditions say."
    ),
    ("remedy.karmada.io", "Remedy"): (
        "Says what is to be done about clusters whose conditions are not as they should be: it "
        "shows in their status, for whoever steers traffic."
    ),
    (_KARMADAS_POLICY, "FederatedResourceQuota"): (
        "Limits what a namespace uses in all clusters together, and on single ones."
    ),
    ("apps.karmada.io", "WorkloadRebalancer"): (
        "Has the workloads it names placed anew, as if they had just come: replicas are shared out "
        "by what is free now. It acts once for each, on what was placed before it was made."
    ),
    (_KARMADAS_WORK, "Work"): (
        "What one cluster must hold, in namespace `karmada-es-NAME`, and what it reported back. "
        "The controllers write it."
    ),
    ("search.karmada.io", "ResourceRegistry"): (
        "Says which kinds of which clusters are shown at the paths of Karmada's search; the fleet "
        "API server reads it."
    ),
    ("config.karmada.io", "ResourceInterpreterCustomization"): (
        "Says with scripts what is to be made of a kind: its replicas, its health, what it needs, "
        "what members keep, what is reported. Controllers and agents go by it."
    ),
    ("config.karmada.io", "ResourceInterpreterWebhookConfiguration"): (
        "The same, asked of a webhook; a script comes before it."
    ),
    ("multicluster.x-k8s.io", "ServiceExport"): (
        "Has the clusters it is placed on report the endpoints of the Service of its name; they "
        "become EndpointSlices `imported-CLUSTER-NAME` on the hub."
    ),
    ("multicluster.x-k8s.io", "ServiceImport"): (
        "Brings the Service `derived-NAME`, and the endpoints that other clusters export, to the "
        "clusters it is placed on."
    ),
    ("networking.karmada.io", "MultiClusterService"): (
        "Places the Service of its name on the clusters that provide and consume it, and the "
        "endpoints of the first on the second."
    ),
    (_MEMBERS, "MemberCluster"): (
        "KubeFleet's door into the fleet: creating one invites a cluster, deleting it lets the "
        "cluster leave."
    ),
    (_MEMBERS, "InternalMemberCluster"): (
        "The same member as its agent sees it, in namespace `fleet-member-NAME`."
    ),
    (_PLACEMENT, "ClusterResourcePlacement"): (
        "KubeFleet's policy: selects objects and namespaces, and the clusters they go to."
    ),
    (_PLACEMENT, "ResourcePlacement"): "The same for objects of its own namespace.",
    (_PLACEMENT, "ClusterResourceOverride"): (
        "Changes objects that a placement selects on their way to a cluster, or keeps them from it."
    ),
    (_PLACEMENT, "ResourceOverride"): (
        "The same for objects of its own namespace; applied later, so it wins."
    ),
    (_PLACEMENT, "ClusterResourceEnvelope"): (
        "Manifests without a namespace, for clusters to have: on the hub they are no objects."
    ),
    (_PLACEMENT, "ResourceEnvelope"): "The same for objects of its own namespace.",
    (_PLACEMENT, "ClusterResourcePlacementEviction"): (
        "Takes a placement off one cluster, once; afterwards its policy picks again."
    ),
    (_PLACEMENT, "ClusterResourcePlacementDisruptionBudget"): (
        "How many clusters of the placement of its name evictions must leave available."
    ),
    (_PLACEMENT, "ClusterStagedUpdateRun"): (
        "Brings one snapshot of a ClusterResourcePlacement of strategy `External` to its clusters, "
        "stage by stage."
    ),
    (_PLACEMENT, "StagedUpdateRun"): "The same for a ResourcePlacement of its namespace.",
    (_PLACEMENT, "ClusterStagedUpdateStrategy"): (
        "Which clusters are in which stage of a run, and what it waits for before and after one."
    ),
    (_PLACEMENT, "StagedUpdateStrategy"): "The same for runs of its namespace.",
    (_PLACEMENT, "ClusterApprovalRequest"): (
        "A stage that waits to be approved: a person sets the condition `Approved`."
    ),
    (_PLACEMENT, "ApprovalRequest"): "The same for runs of its namespace.",
    ("about.k8s.io", "ClusterProperty"): (
        "On a member: what it says of itself. `id.k8s.io` is its ID in the fleet."
    ),
}
"""Kinds that people write or read and our controllers act on: their fields are listed."""

WRITTEN: Final[Mapping[GroupKind, str]] = {
    ("multicluster.x-k8s.io", "ClusterProfile"): (
        "A cluster, as the consumer of this namespace is told of it."
    ),
    (_PLACEMENT, "ClusterResourcePlacementStatus"): (
        "The status of a placement, for users of the namespace that it places."
    ),
    (_PLACEMENT, "ClusterSchedulingPolicySnapshot"): (
        "The policy of a placement at one time; its status has a reason for every cluster."
    ),
    (_PLACEMENT, "SchedulingPolicySnapshot"): "The same of a ResourcePlacement.",
    (_PLACEMENT, "ClusterResourceSnapshot"): "What a placement selected at one time.",
    (_PLACEMENT, "ResourceSnapshot"): "What a ResourcePlacement selected at one time.",
    (_PLACEMENT, "ClusterResourceOverrideSnapshot"): "An override at one time.",
    (_PLACEMENT, "ResourceOverrideSnapshot"): "An override at one time.",
    (_PLACEMENT, "ClusterResourceBinding"): (
        "One cluster of a placement, with the conditions of that cluster."
    ),
    (_PLACEMENT, "ResourceBinding"): "The same of a ResourcePlacement.",
    (_PLACEMENT, "Work"): "What KubeFleet's own agent is to have on its member, where it works.",
}
"""Kinds that our controllers write for each other: to look at, not to edit."""

BY_COMMANDS: Final[Mapping[GroupKind, str]] = {
    ("migration.clusterspace.io", "Migration"): (
        "A live cluster that is taken in by a plan: which one, and how far that is. "
        "`spec.paused` is what people may set."
    ),
    ("migration.clusterspace.io", "MigrationItems"): (
        "Two hundred objects of such a plan, and what became of each."
    ),
}
"""Kinds that `clusterspace migrate` writes, and goes on by."""

FOR_OTHERS: Final[Mapping[GroupKind, str]] = {
    (_PLACEMENT, "AppliedWork"): "KubeFleet",
}
"""Kinds that only the controllers of another project write. Those that people write, and that are
likewise left to others, are in `apiserver/admission/unenforced.py`."""

_SELECTORS: Final = {
    "spec.resourceSelectors": "Which templates.",
    "spec.resourceSelectors.apiVersion": "Group and version of their kind.",
    "spec.resourceSelectors.name": "One object by its name.",
    "spec.resourceSelectors.namespace": "Its namespace; that of the policy when it is not said.",
    "spec.resourceSelectors.labelSelector": "Or all that carry these labels.",
}

_POLICY: Final = {
    **_SELECTORS,
    "spec.activationPreference": (
        "`Lazy`: a change of the policy reaches templates when they change the next time."
    ),
    "spec.conflictResolution": (
        "What becomes of an object that is on the member already: `Abort` leaves it, `Overwrite` "
        "takes it over."
    ),
    "spec.dependentOverrides": "Override policies that must exist before anything is placed.",
    "spec.priority": "Of the policies of one kind that select a template, the highest wins.",
    "spec.propagateDeps": "What pods refer to (ConfigMaps, Secrets, claims, accounts) goes along.",
    "spec.preserveResourcesOnDeletion": "What is placed stays when its template goes.",
    "spec.rollout": (
        "Ours, and no field of Karmada's: changes of templates and overrides reach clusters stage "
        "by stage ([guide](../guides/staged-rollouts.md)). Without it, all at once."
    ),
    "spec.rollout.strategyName": (
        "A StagedUpdateStrategy of the namespace; of a ClusterPropagationPolicy, a "
        "ClusterStagedUpdateStrategy."
    ),
    "spec.rollout.progressDeadlineSeconds": (
        "After which a cluster that does not get well is reported as stuck; 300, if not said."
    ),
    "spec.schedulerName": (
        "Who chooses clusters. What is not `default-scheduler` is left to somebody else."
    ),
    "spec.suspension.dispatching": "Nothing more is sent to members; they keep what they have.",
    "spec.suspension.dispatchingOnClusters": "The same, on these clusters only.",
    "spec.placement.clusterAffinity": "Which clusters come into question; all, if not said.",
    "spec.placement.clusterAffinity.clusterNames": "By name.",
    "spec.placement.clusterAffinity.exclude": "These never.",
    "spec.placement.clusterAffinity.labelSelector": "By labels of the Cluster.",
    "spec.placement.clusterAffinity.fieldSelector": "By `provider`, `region` and `zone`.",
    "spec.placement.clusterAffinities": (
        "Several such groups in order: the first with enough clusters is taken."
    ),
    "spec.placement.clusterAffinities.overflowAffinities": (
        "Clusters for the replicas that do not fit into the group."
    ),
    "spec.placement.clusterTolerations": (
        "Taints of clusters that do not matter to this policy's templates."
    ),
    "spec.placement.replicaScheduling.replicaSchedulingType": (
        "`Duplicated`: each cluster has all replicas. `Divided`: they share them."
    ),
    "spec.placement.replicaScheduling.replicaDivisionPreference": (
        "`Weighted`: by weight. `Aggregated`: on as few clusters as have room."
    ),
    "spec.placement.replicaScheduling.weightPreference.dynamicWeight": (
        "Weights are the replicas each cluster has room for."
    ),
    "spec.placement.replicaScheduling.weightPreference.staticWeightList": (
        "Weights of clusters; one that is not in the list gets none."
    ),
    "spec.placement.workloadAffinity": (
        "Where other workloads of the namespace count; it decides about new places, and moves "
        "nothing."
    ),
    "spec.placement.workloadAffinity.affinity.groupByLabelKey": (
        "Templates with the same value of this label are placed on the same clusters; the first "
        "one chooses."
    ),
    "spec.placement.workloadAffinity.antiAffinity.groupByLabelKey": (
        "Templates with the same value of this label are placed on different clusters; one for "
        "which none is left waits."
    ),
    "spec.placement.spreadConstraints": "Over how many clusters, zones, regions or providers.",
    "spec.placement.spreadConstraints.spreadByField": "What is counted.",
    "spec.placement.spreadConstraints.spreadByLabel": "A label of the Cluster is counted instead.",
    "spec.placement.spreadConstraints.minGroups": "At least so many.",
    "spec.placement.spreadConstraints.maxGroups": "At most so many.",
}

_OVERRIDERS: Final = {
    "annotationsOverrider": "Annotations, other than marks of control planes.",
    "labelsOverrider": "Labels, other than marks of control planes.",
    "argsOverrider": "Arguments of a container.",
    "commandOverrider": "The command of a container.",
    "imageOverrider": "A part of images: registry, repository or tag.",
    "imageOverrider.predicate": "One image by its path; without it, those of all containers.",
    "fieldOverrider": "JSON or YAML inside of one text field, such as a key of a ConfigMap.",
    "plaintext": "Any field by its path, but for what says which object it is.",
}

_OVERRIDE: Final = {
    **_SELECTORS,
    "spec.resourceSelectors": "Which templates; all, if not said.",
    "spec.overrideRules": "What is changed, and for which clusters.",
    "spec.overrideRules.targetCluster": "For which clusters; all, if not said.",
    **{f"spec.overrideRules.overriders.{each}": says for each, says in _OVERRIDERS.items()},
    "spec.overriders": "The older form of one rule; `spec.overrideRules` says the same.",
    "spec.targetCluster": "Belongs to `spec.overriders`.",
}

_BINDING: Final = {
    "spec.clusters": "The clusters chosen, each with its replicas.",
    "spec.resource": "The template. Group, kind, namespace and name cannot change.",
    "spec.replicas": "Replicas of the template.",
    "spec.replicaRequirements": "What one replica asks for.",
    "spec.placement": "The policy's placement.",
    "spec.requiredBy": "Bindings whose template needs this one, and their clusters.",
    "spec.propagateDeps": "As in the policy.",
    "spec.conflictResolution": "As in the policy.",
    "spec.preserveResourcesOnDeletion": "As in the policy.",
    "spec.schedulerName": "As in the policy.",
    "spec.suspension": "As in the policy.",
    "spec.suspension.scheduling": "The clusters stay as they are.",
    "spec.rollout": "As in the policy; ours.",
    "spec.revisions": "Ours: which state of the template each cluster is to have, in a rollout.",
    "spec.revisions.latest": "The newest state, by the hash that its snapshot is named with.",
    "spec.revisions.stable": "The last one that went through every stage.",
    "spec.revisions.clusters": "The state of each cluster.",
    "spec.revisions.digests": "What the snapshot of each state said when it was stored.",
    "spec.revisions.run": "The update run that brings the newest one.",
    "spec.rescheduleTriggeredAt": "A time after the last scheduling has the clusters chosen anew.",
    "spec.gracefulEvictionTasks": (
        "Clusters that it is to leave: they are not chosen any more, and keep what they have until "
        "the task is gone, or go at once if its `purgeMode` is `Directly`."
    ),
    "spec.workloadAffinityGroups": "The groups it is in, by the labels of its template.",
    "spec.components": "More than one component is not divided.",
    "status.aggregatedStatus": "What each cluster says of the object.",
    "status.aggregatedStatus.applied": "Whether it is there as wanted.",
    "status.aggregatedStatus.appliedMessage": "If not, why.",
    "status.conditions": "`Scheduled`, `FullyApplied`, `WorksWritten`, `RolledOut`.",
    "status.schedulerObservedGeneration": "The generation that clusters were chosen for.",
    "status.schedulerObservingAffinityName": "The group of `clusterAffinities` in use.",
    "status.lastScheduledTime": "When clusters were chosen last.",
}

_FLEET_PLACEMENT: Final = {
    "spec.policy.placementType": (
        "`PickAll`: every cluster that fits. `PickN`: so many. `PickFixed`: those named."
    ),
    "spec.policy.clusterNames": "For `PickFixed`.",
    "spec.policy.numberOfClusters": "For `PickN`.",
    "spec.policy.affinity.clusterAffinity": (
        "By labels and properties of clusters: what is required, and what is preferred with a "
        "weight."
    ),
    "spec.policy.tolerations": "Taints of clusters that do not matter.",
    "spec.policy.topologySpreadConstraints": "For `PickN`: evenly over values of a label.",
    "spec.revisionHistoryLimit": "Snapshots that are kept.",
    "spec.strategy.type": "`External`: clusters are picked, and an update run rolls out.",
    "spec.statusReportingScope": (
        "`NamespaceAccessible`: a ClusterResourcePlacementStatus in the placed namespace has the "
        "status, too. A ResourcePlacement has it there anyway, so that is refused."
    ),
    "spec.strategy.applyStrategy.allowCoOwnership": (
        "Objects that have owners on the member are taken over only if it is true."
    ),
    "spec.strategy.applyStrategy.comparisonOption": (
        "`FullComparison` counts what others added to an object, too."
    ),
    "spec.strategy.applyStrategy.type": (
        "`ReportDiff` compares, and applies nothing. Else members get a forced apply; "
        "`ServerSideApply` that does not force is refused."
    ),
    "spec.strategy.applyStrategy.whenToApply": (
        "`IfNotDrifted` leaves what somebody changed on the member, until the object changes here."
    ),
    "spec.strategy.applyStrategy.whenToTakeOver": (
        "What becomes of an object that is on the member already."
    ),
    "spec.strategy.deleteStrategy.propagationPolicy": (
        "`Abandon`: what is placed stays when the placement goes."
    ),
    "spec.strategy.rollingUpdate.maxUnavailable": "Clusters that may be without at a time.",
    "spec.strategy.rollingUpdate.maxSurge": "Clusters more than asked for at a time.",
    "spec.strategy.rollingUpdate.unavailablePeriodSeconds": (
        "How long an object without a readiness of its own is taken for unavailable."
    ),
    "status.conditions": "Of the whole placement; a message names the clusters that lag.",
    "status.observedResourceIndex": "The snapshot that is rolled out.",
    "status.placementStatuses": "Each cluster, with what it would not have.",
    "status.placementStatuses.diffedPlacements": "For `ReportDiff`: what differs there, and how.",
    "status.selectedResources": "What the selectors found.",
}

_STAGED_RUN: Final = {
    "spec.placementName": "The placement, of strategy `External`. Immutable.",
    "spec.resourceSnapshotIndex": (
        "Which snapshot; what is selected now if not said. An older one rolls back. Immutable."
    ),
    "spec.stagedRolloutStrategyName": "The strategy; copied at the beginning. Immutable.",
    "spec.state": "`Initialize`: stages are told, nothing changes. `Run`, `Stop`: at any time.",
    "status.stagesStatus": "Each stage with its clusters, tasks and conditions.",
    "status.deletionStageStatus": "Clusters that are picked no longer, and let go at the end.",
    "status.resourceSnapshotIndexUsed": "The snapshot it brings.",
    "status.conditions": "`Initialized`, `Progressing` and `Succeeded`.",
}

_STAGED_STRATEGY: Final = {
    "spec.stages": "In this order; every cluster must be in exactly one.",
    "spec.stages.labelSelector": "Which clusters; none if not said, all if empty.",
    "spec.stages.sortingLabelKey": "A label of clusters with a whole number: their order.",
    "spec.stages.maxConcurrency": (
        "How many at a time: a number, or a share of the stage, rounded down, at least one."
    ),
    "spec.stages.beforeStageTasks": "`Approval`: the stage begins when somebody approved it.",
    "spec.stages.afterStageTasks": "`TimedWait` and `Approval`: the next one begins after both.",
}

_APPROVAL_REQUEST: Final = {
    "spec.parentStageRollout": "The run.",
    "spec.targetStage": "The stage.",
    "status.conditions": "`Approved` is for people to set; `ApprovalAccepted` says it was seen.",
}

_FLEET_OVERRIDE: Final = {
    "spec.placement": "The one placement it is for; without it, all. Immutable.",
    "spec.policy.overrideRules": "In their order; the last one wins.",
    "spec.policy.overrideRules.clusterSelector": (
        "By labels; none at all means no cluster, an empty one every cluster."
    ),
    "spec.policy.overrideRules.jsonPatchOverrides": (
        "Not of what says which object it is, of our marks, nor of what RBAC kinds grant."
    ),
    "spec.policy.overrideRules.jsonPatchOverrides.value": (
        "`${MEMBER-CLUSTER-NAME}` and `${MEMBER-CLUSTER-LABEL-KEY-KEY}` are filled in."
    ),
    "spec.policy.overrideRules.overrideType": "`Delete` keeps the object from the cluster.",
}
_MEMBER: Final = {
    "spec.heartbeatPeriodSeconds": "How often the agent reports.",
    "status.agentStatus": "What the agent reports, with its last heartbeat.",
    "status.resourceUsage": "What the nodes have, and how much of it is free.",
    "status.properties": "Figures about the cluster by name.",
}

FIELDS: Final[Mapping[GroupKind, Mapping[str, str]]] = {
    ("access.clusterspace.io", "ClusterConsumer"): {
        "spec.serviceAccount": "The account of the hub that it is; it does not change.",
        "spec.clusterAffinity": "Which clusters; an empty one means all.",
        "spec.outputs": "`ClusterProfile`, `TokenSecret`, `ArgoCDSecret`, for each cluster.",
        "spec.tokenSeconds": "When a token ends: 600 to 3600.",
        "spec.suspend": "Takes all its credentials back.",
        "status.clusters": "How many clusters it is told of.",
    },
    ("multicluster.x-k8s.io", "ServiceExport"): {
        "status.conditions": "As controllers of the members write them.",
    },
    ("multicluster.x-k8s.io", "ServiceImport"): {
        "spec.type": "`Headless`: the derived Service has no address of its own.",
        "spec.ports": "The derived Service's.",
        "spec.sessionAffinity": "The derived Service's, as is its configuration.",
        "status.clusters": "Whose endpoints are imported.",
    },
    ("networking.karmada.io", "MultiClusterService"): {
        "spec.types": (
            "`CrossCluster`: endpoints go to other clusters. `LoadBalancer`: addresses that "
            "clusters gave the Service are summed up. One of them, and never changed."
        ),
        "spec.ports": "Ports of the Service that consumers may reach; all, if none is listed.",
        "spec.providerClusters": "Whose endpoints count; those of all clusters, if none is listed.",
        "spec.consumerClusters": "Who is to reach them; all clusters, if none is listed.",
        "spec.serviceProvisionClusters": "Deprecated: counts when `providerClusters` is empty.",
        "spec.serviceConsumptionClusters": "Deprecated: counts when `consumerClusters` is empty.",
        "spec.range": "Deprecated: counts for both when nothing newer is said.",
        "status.loadBalancer": "The Service's, over all clusters.",
        "status.conditions": "`ServiceApplied` and `EndpointSliceDispatched`.",
    },
    ("autoscaling.karmada.io", "FederatedHPA"): {
        "spec.scaleTargetRef": "A template that a policy places, with a `scale` subresource.",
        "spec.minReplicas": "1, if not said; 0 takes an Object or External metric.",
        "spec.maxReplicas": "Of the template; where clusters get full copies, of each.",
        "spec.metrics": (
            "CPU at 80 % of requests, if none is listed. The one that asks for most decides."
        ),
        "spec.behavior": "Windows and policies, as of a HorizontalPodAutoscaler.",
        "status.currentReplicas": "The template's.",
        "status.desiredReplicas": "What was last asked for.",
        "status.currentMetrics": "What was last measured, over all clusters.",
        "status.conditions": (
            "`AbleToScale`, `ScalingActive`, `ScalingLimited`, with Kubernetes' reasons; clusters "
            "of which nothing is known are named."
        ),
        "status.lastScaleTime": "When it last changed the template.",
        "status.observedGeneration": "The generation that all of this is about.",
    },
    ("autoscaling.karmada.io", "CronFederatedHPA"): {
        "spec.scaleTargetRef": "A template with a `scale` subresource, or a FederatedHPA.",
        "spec.rules.name": "Its history goes by this name.",
        "spec.rules.schedule": "As of a CronJob.",
        "spec.rules.timeZone": "UTC, if not said.",
        "spec.rules.targetReplicas": "For templates.",
        "spec.rules.targetMinReplicas": "For FederatedHPAs.",
        "spec.rules.targetMaxReplicas": "For FederatedHPAs.",
        "spec.rules.suspend": "Not due while it is true.",
        "spec.rules.successfulHistoryLimit": "3, if not said.",
        "spec.rules.failedHistoryLimit": "3, if not said.",
        "status.executionHistories.nextExecutionTime": (
            "When it is due. A time that passed while no controller ran is made up for."
        ),
        "status.executionHistories.successfulExecutions": "The newest first.",
        "status.executionHistories.failedExecutions": "The newest first, with the reason.",
    },
    (_KARMADAS_POLICY, "ClusterTaintPolicy"): {
        "spec.targetClusters": "Which clusters; all, if not said.",
        "spec.addOnConditions": "Taints are set when all of these hold; never if there are none.",
        "spec.removeOnConditions": "They go when all of these hold; never if there are none.",
        "spec.taints": (
            "`NoExecute` only if the controllers run with `--enable-no-execute-taint-eviction`."
        ),
    },
    ("remedy.karmada.io", "Remedy"): {
        "spec.clusterAffinity": "Which clusters, by name; all, if not said.",
        "spec.decisionMatches": "One of these is enough; without any it acts at once.",
        "spec.decisionMatches.clusterConditionMatch": (
            "A condition of the Cluster; one that it does not have is not met."
        ),
        "spec.actions": "What `status.remedyActions` of the Cluster shows: `TrafficControl`.",
    },
    (_KARMADAS_POLICY, "FederatedResourceQuota"): {
        "spec.overall": (
            "What bindings of the namespace may take in the whole fleet; a write that takes more "
            "is refused."
        ),
        "spec.staticAssignments": "A ResourceQuota of this name for each cluster that is named.",
        "spec.staticAssignments.hard": "Of resources that `overall` has, and together no more.",
        "status.overall": "The limit that is counted by.",
        "status.overallUsed": "What bindings take of it, those on their way included.",
        "status.aggregatedStatus": "What the ResourceQuota of each cluster says.",
    },
    ("apps.karmada.io", "WorkloadRebalancer"): {
        "spec.workloads": "What is placed anew; the list may be edited later.",
        "spec.workloads.namespace": "Empty for what has none.",
        "spec.ttlSecondsAfterFinished": (
            "When the rebalancer itself is deleted, counted from its finish; never if unset."
        ),
        "status.observedGeneration": "The generation that `observedWorkloads` is about.",
        "status.observedWorkloads": (
            "What became of each. One that succeeded stays listed when it leaves the spec."
        ),
        "status.observedWorkloads.result": (
            "`Successful`: its binding was asked for. `Failed`: there is none, which is not tried "
            "again."
        ),
        "status.observedWorkloads.reason": "`ReferencedBindingNotFound`.",
        "status.finishTime": "When every workload had a result.",
    },
    ("cluster.karmada.io", "Cluster"): {
        "spec.apiEndpoint": "Its address: https.",
        "spec.id": "Which cluster it is, whatever it is called. It cannot change.",
        "spec.syncMode": "`Push`: the hub dials it. `Pull`: its agent dials the hub.",
        "spec.secretRef": "The hub's token there, in namespace `karmada-cluster`.",
        "spec.impersonatorSecretRef": "The token that users' requests are made with.",
        "spec.insecureSkipTLSVerification": "Its certificate is not verified.",
        "spec.proxyURL": "Proxy on the way to it.",
        "spec.proxyHeader": "Headers for that proxy.",
        "spec.provider": "For placement.",
        "spec.region": "For placement.",
        "spec.zones": "For placement.",
        "spec.zone": "Becomes `spec.zones` when it is written.",
        "spec.taints": (
            "Which templates are not placed here. `NoExecute` keeps new ones away, and has others "
            "leave if the controllers run with `--enable-no-execute-taint-eviction`."
        ),
        "spec.resourceModels": "Grades of nodes by free room, to estimate how much fits.",
        "status.apiEnablements": "Which kinds it serves.",
        "status.clusterProperty": "Its ClusterProperties.",
        "status.conditions": "`Ready`, `CompleteAPIEnablements`, `DeletionsPaused` and others.",
        "status.remedyActions": "What Remedies ask for; our part is to say so.",
        "status.nodeSummary": "How many nodes there are, and how many are ready.",
        "status.resourceSummary": "What nodes offer, and what pods ask for.",
        "status.estimate": (
            "What it can still take, node by node and by its ResourceQuotas; `staleSince` says "
            "since when it could not be asked."
        ),
        "status.kubernetesVersion": "What it runs.",
    },
    (_KARMADAS_POLICY, "PropagationPolicy"): _POLICY,
    (_KARMADAS_POLICY, "ClusterPropagationPolicy"): _POLICY,
    (_KARMADAS_POLICY, "OverridePolicy"): _OVERRIDE,
    (_KARMADAS_POLICY, "ClusterOverridePolicy"): _OVERRIDE,
    (_KARMADAS_WORK, "ResourceBinding"): _BINDING,
    (_KARMADAS_WORK, "ClusterResourceBinding"): _BINDING,
    (_KARMADAS_WORK, "Work"): {
        "spec.workload.manifests": "The objects, as they are to be there.",
        "spec.suspendDispatching": "Nothing is sent; the member keeps what it has.",
        "spec.preserveResourcesOnDeletion": "What is placed stays when the Work goes.",
        "status.conditions": "`Applied`, `Dispatching`.",
        "status.manifestStatuses": "What the member says of each object.",
        "status.manifestStatuses.identifier.ordinal": "Its place among the manifests.",
    },
    (_MEMBERS, "MemberCluster"): {
        **_MEMBER,
        "spec.identity": (
            "Who the agent is at the hub. Setting it takes `update` on "
            "`memberclusters/credentials`."
        ),
        "spec.taints": "Keep new work away; they come onto the Cluster, and drive nothing out.",
        "status.conditions": "`ReadyToJoin`, `Joined`, `HeartbeatReceived`, `Leaving`.",
    },
    (_MEMBERS, "InternalMemberCluster"): {
        **_MEMBER,
        "spec.state": "`Join` or `Leave`: what the agent is to do.",
    },
    (_PLACEMENT, "ClusterResourcePlacement"): {
        **_FLEET_PLACEMENT,
        "spec.resourceSelectors": "Which objects without a namespace, and which namespaces.",
        "spec.resourceSelectors.selectionScope": (
            "Of a namespace: itself alone, with all that is in it, or with what other selectors "
            "name."
        ),
    },
    (_PLACEMENT, "ResourcePlacement"): {
        **_FLEET_PLACEMENT,
        "spec.resourceSelectors": "Which objects of its namespace.",
    },
    (_PLACEMENT, "ClusterResourcePlacementEviction"): {
        "spec.placementName": "A ClusterResourcePlacement that does not name its clusters.",
        "spec.clusterName": "A cluster that has it.",
        "status.conditions": "`Valid` and `Executed`; whatever they say is for good.",
    },
    (_PLACEMENT, "ClusterResourcePlacementDisruptionBudget"): {
        "spec.maxUnavailable": "For `PickN`: so many of those asked for may be missing.",
        "spec.minAvailable": "So many must be available; for `PickAll` a number, not a share.",
    },
    (_PLACEMENT, "ClusterStagedUpdateRun"): _STAGED_RUN,
    (_PLACEMENT, "StagedUpdateRun"): _STAGED_RUN,
    (_PLACEMENT, "ClusterStagedUpdateStrategy"): _STAGED_STRATEGY,
    (_PLACEMENT, "StagedUpdateStrategy"): _STAGED_STRATEGY,
    (_PLACEMENT, "ClusterApprovalRequest"): _APPROVAL_REQUEST,
    (_PLACEMENT, "ApprovalRequest"): _APPROVAL_REQUEST,
    (_PLACEMENT, "ClusterResourceEnvelope"): {"data": "Manifests, each under a key of its own."},
    (_PLACEMENT, "ResourceEnvelope"): {"data": "Manifests, each under a key of its own."},
    (_PLACEMENT, "ClusterResourceOverride"): {
        **_FLEET_OVERRIDE,
        "spec.clusterResourceSelectors": (
            "Objects without a namespace, by name; a Namespace means all that is in it."
        ),
    },
    (_PLACEMENT, "ResourceOverride"): {
        **_FLEET_OVERRIDE,
        "spec.resourceSelectors": "Objects of its own namespace, by name.",
    },
    ("about.k8s.io", "ClusterProperty"): {"spec.value": "What the property says."},
    ("config.karmada.io", "ResourceInterpreterCustomization"): {
        "spec.target": "Of which kind it speaks, in one version.",
        "spec.customizations": "A script in Lua for each of eight operations, or for some.",
        "spec.customizations.componentResource": "`GetComponents(obj)`: its parts with pods.",
        "spec.customizations.dependencyInterpretation": (
            "`GetDependencies(obj)`: what goes with it where `propagateDeps` is asked for."
        ),
        "spec.customizations.healthInterpretation": "`InterpretHealth(obj)`: whether it is well.",
        "spec.customizations.replicaResource": (
            "`GetReplicas(obj)`: how many replicas, and what each needs."
        ),
        "spec.customizations.replicaRevision": (
            "`ReviseReplica(obj, count)`: the object with a cluster's share."
        ),
        "spec.customizations.retention": (
            "`Retain(desired, observed)`: the object with what the member keeps."
        ),
        "spec.customizations.statusAggregation": (
            "`AggregateStatus(obj, items)`: the template with what its clusters report."
        ),
        "spec.customizations.statusReflection": "`ReflectStatus(obj)`: what is reported of it.",
    },
    ("config.karmada.io", "ResourceInterpreterWebhookConfiguration"): {
        "webhooks": "Asked in the order of the names of their configurations.",
        "webhooks.rules": "For which operations of which kinds; `*` for all.",
        "webhooks.clientConfig": "Its `url`, or a `service` by its name in the cluster.",
        "webhooks.timeoutSeconds": "1 to 30, and 10 if not said.",
        "webhooks.interpreterContextVersions": "Must include `v1alpha1`.",
    },
    ("search.karmada.io", "ResourceRegistry"): {
        "spec.targetCluster": (
            "Of which clusters: by `clusterNames`, `exclude`, labels of the Cluster, `provider`, "
            "`region` and `zone`; of all, if nothing is asked for."
        ),
        "spec.resourceSelectors": "Which kinds.",
        "spec.resourceSelectors.apiVersion": "Group and version of the kind.",
        "spec.resourceSelectors.namespace": "In one namespace; in all, if not said.",
        "status.conditions": "For others to write.",
    },
}
"""Kind to field to what it means; lists are written without brackets."""

REFUSED: Final = "a write is refused with the reason"
_RULE_TERMS: Final = "spec.policy.overrideRules.clusterSelector.clusterSelectorTerms"
_AFFINITY: Final = "spec.policy.affinity.clusterAffinity"
_PLACEMENT_REFUSED: Final = {
    f"{_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution"
    ".clusterSelectorTerms.propertySorter": REFUSED,
    f"{_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution"
    ".preference.propertySelector": REFUSED,
}

_OVERRIDE_REFUSED: Final = {
    f"{_RULE_TERMS}.propertySelector": REFUSED,
    f"{_RULE_TERMS}.propertySorter": REFUSED,
}

SEE_POLICY: Final = "see the policy"
"""Of a binding: the controllers write it as the policy has it, and it acts."""

LEFT_OUT: Final[Mapping[GroupKind, Mapping[str, str]]] = {
    (_KARMADAS_WORK, "ResourceBinding"): {
        "spec.failover": SEE_POLICY,
        "spec.schedulePriority": SEE_POLICY,
    },
    (_PLACEMENT, "ClusterResourcePlacement"): _PLACEMENT_REFUSED,
    (_PLACEMENT, "ResourcePlacement"): _PLACEMENT_REFUSED,
    (_PLACEMENT, "ClusterResourceOverride"): {
        **_OVERRIDE_REFUSED,
        "spec.clusterResourceSelectors.labelSelector": REFUSED,
    },
    (_PLACEMENT, "ResourceOverride"): _OVERRIDE_REFUSED,
}
"""Kind to field to why nothing acts on it, beside those that a write of them warns of."""

_PLACEMENT_VALUES: Final = {
    "spec.strategy.applyStrategy.type": "`ServerSideApply` that does not force",
}

OURS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    ("policy.karmada.io", "PropagationPolicy"): ("spec.rollout",),
    ("policy.karmada.io", "ClusterPropagationPolicy"): ("spec.rollout",),
    ("work.karmada.io", "ResourceBinding"): ("spec.revisions", "spec.rollout"),
    ("work.karmada.io", "ClusterResourceBinding"): ("spec.revisions", "spec.rollout"),
}
"""Fields that we have in kinds of others."""

REFUSED_VALUES: Final[Mapping[GroupKind, Mapping[str, str]]] = {
    (_PLACEMENT, "ClusterResourcePlacement"): _PLACEMENT_VALUES,
    (_PLACEMENT, "ResourcePlacement"): {
        **_PLACEMENT_VALUES,
        "spec.statusReportingScope": "`NamespaceAccessible`",
    },
}
"""Kind to field to the value of it that is refused, where others act."""
