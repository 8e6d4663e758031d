"""Flow 2 as the hub sees it: template to policy to binding to work, and statuses back.

    template ──policy──> binding ──scheduler──> clusters ──overrides──> works ──> (members)
        ▲                   ▲                                             │
        └───── status ──────┴───────────── aggregated status ─────────────┘

Controllers, each with the decisions it takes; a folder where those are many:
    detector.py      Detector: template to policy to binding; PolicyLifecycle: IDs and finalizers of
                     policies, until nothing follows one
    dependencies.py  DependencyDistributor: what a template needs, brought along
    scheduler/       Scheduler: binding to clusters: filter, score, select, divide
    rebalancer.py    RebalancerController: WorkloadRebalancers have workloads placed anew
    eviction/        Eviction: off a tainted cluster when something replaces it; taint policies
    scale_targets.py ScaleTargets: what members scale by themselves, members keep
    metrics_readers.py  MetricsReaders: the right to read metrics, on Pull clusters with such pods
    works/           BindingWorks: binding to one Work per cluster, and away with stale ones
    namespaces.py    NamespaceWorks: every namespace, on every cluster
    watchdogs.py     WatchdogWorks: who stops leased copies on Push clusters, placed there
    quotas.py        FederatedQuotas: FederatedResourceQuotas to clusters; what is taken of them
    services/        ServiceExports, ServiceImports, MultiClusterServices: endpoints of one
                     cluster for others
    statuses.py      BindingStatuses: Works back to binding back to template
    rollouts/        PolicyRollouts: changes of policies to their clusters, stage by stage
    placements/      PlacementController: KubeFleet's placements to clusters and bindings;
                     StagedUpdateRuns: snapshots of them to clusters, stage by stage

What they share:
    templates.py     which objects are templates, the caches that follow them, the states sent
    bindings.py      which policy claims a template; its one binding: claim, owner, clusters
    heartbeats.py    when the agents, and watchdogs, of clusters were last heard
    overrides.py     what changes in a manifest on its way to one cluster

For people:
    explanation.py   why one object is where it is
    history.py       the story of a move, as events tell it
    simulation.py    what a failure, a drain, a fresh start or a new policy would do

Its controllers meet only in the API: each follows what the one before it wrote, and can be
stopped alone. Nothing is removed because it could not be seen.
"""
