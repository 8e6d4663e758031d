"""Flow 2 as the hub sees it: template to policy to binding to work, and statuses back.

    template ──policy──> binding ──scheduler──> clusters ──overrides──> works ──> (members)
        ▲                   ▲                                             │
        └───── status ──────┴───────────── aggregated status ─────────────┘

Controllers, each in a folder with the decisions it takes:
    detector/        Detector: template to policy to binding
    policies/        PolicyLifecycle: policies that begin, select something else, or end
    dependencies/    DependencyDistributor: what a template needs, brought along
    scheduler/       Scheduler: binding to clusters: filter, score, select, divide
    works/           BindingWorks: binding to one Work per cluster, and away with stale ones
    namespaces/      NamespaceWorks: every namespace, on every cluster
    statuses/        BindingStatuses: Works back to binding back to template
    placements/      PlacementController: ClusterResourcePlacements to clusters and bindings

What they share:
    templates.py     which objects are templates, and the caches that follow all of them
    bindings.py      the one binding of each template: its claim, its owner, its clusters
    overrides.py     what changes in a manifest on its way to one cluster

For people:
    explanation.py   why one object is where it is

Its controllers meet only in the API: each follows what the one before it wrote, and can be
stopped alone. Nothing is removed because it could not be seen.
"""
