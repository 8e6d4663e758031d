"""A ClusterResourcePlacement, compiled into the engine's bindings: picked, rolled out, reported.

    selectors ──> objects ──> snapshot ─┐
                                        ├──> rollout ──> bindings of the engine ──> (Works)
    policy ──> clusters ──> bindings ───┘                                              │
                                  ▲  status <── reports <──────────────────────────────┘

Decisions, which know nothing of a hub:
    picking.py      all, so many, or those named: which clusters, and why not the others
    selection.py    which objects are selected, and what is placed of each
    snapshots.py    policy and selection, written down and numbered
    bindings.py     a placement's bindings, one for each cluster
    rollout.py      who gets the newest state now
    handover.py     the engine's binding of each object; whose an object is
    status.py       what became of it on each cluster, and what a placement says of itself

With a hub:
    controller.py   PlacementController: what wakes it, the steps in their order, the end
    steps.py        picking, selecting and rolling out: each reads, decides and writes

It schedules and applies nothing itself: filters, Works, takeover, drift and statuses are those of
policies. docs/decisions/0009-placements-become-bindings.md has the reasons.
"""
