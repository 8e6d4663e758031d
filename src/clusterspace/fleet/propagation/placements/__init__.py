"""Placements of both kinds: clusters are picked, and bindings of work.karmada.io are written.

    selectors ──> objects ──> snapshot ─┐
                                        ├──> rollout ──> bindings of the engine ──> (Works)
    policy ──> clusters ──> bindings ───┘                                              │
                                  ▲  status <── reports <──────────────────────────────┘

Decisions, which know nothing of a hub:
    picking.py      picks clusters by KubeFleet's rules (PickAll, PickN, PickFixed), with reasons
    selection.py    which objects are selected, what is placed of each; numbered snapshots of it
    overrides.py    which override snapshots a cluster is to have, and what they make of an object
    rollout.py      a placement's bindings, one for each cluster; who gets the newest state now; the
                    engine's binding of each object, and whose an object is
    staged_updates.py
                    how a staged update run goes on: stages, tasks, clusters some at a time
    status.py       what became of it on each cluster, and what a placement says of itself

With a hub:
    controller.py   PlacementController: what wakes it, the steps in their order, the end
    steps.py        picking, selecting and rolling out: each reads, decides and writes
    staged_update_runs.py
                    StagedUpdateRuns: runs that take a placement of strategy External to a snapshot
    run_writer.py   statuses of runs and requests for approval, of placements and of policies
    evictions.py    PlacementEvictions: one cluster lets go of a placement, if a budget allows it
    override_snapshots.py
                    OverrideSnapshots: numbered snapshots of overrides, for as long as they are used

Clusters are picked here and not by the Scheduler, which leaves these bindings alone: picking.py has
its own checks of health, labels and spread, and shares only the rule about taints. So a new policy
filter (FILTERS of the scheduler) does not apply here. Everything after the binding is the same as
for policies: overrides, Works, takeover, drift and statuses.
docs/decisions/0009-placements-become-bindings.md has the reasons.
"""
