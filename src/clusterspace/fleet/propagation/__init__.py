"""Flow 2 as the hub sees it: template to policy to binding to work, and statuses back.

    template ──policy──> binding ──scheduler──> clusters ──overrides──> works ──> (members)
        ▲                   ▲                                             │
        └───── status ──────┴───────────── aggregated status ─────────────┘

Claiming:
    templates.py           which objects are templates, and what users wrote in them
    template_informers.py  every kind the hub serves, followed; kinds come and go
    claims.py              which policy has a template, written on the template
    policies.py            which policy claims a template, when several could
    triggers.py            which templates to look at again when something changed
    bindings.py            what the binding of a template says
    detector.py            template to policy to binding, as a controller
    policy_upkeep.py       policies that end, or select something else
    dependencies.py        what a template needs besides itself
    distributor.py         those things brought along

Placing:
    scheduling/            binding to clusters: filter, score, select, divide
    targets.py             which clusters a binding means, and how many replicas each gets
    overrides/             what changes in a manifest on its way to one cluster
    works/                 binding to one Work per cluster, and the removal of stale ones
    statuses.py            Works back to binding back to template
    work_controllers.py    the controllers of the three, each with what wakes it

By placement:
    placements/            ClusterResourcePlacements, compiled into the same bindings

For people:
    explanation/           why one object is where it is

Its controllers meet only in the API: each follows what the one before it wrote, and can be
stopped alone. Nothing is removed because it could not be seen.
"""
