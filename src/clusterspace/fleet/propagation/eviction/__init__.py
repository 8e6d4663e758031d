"""Leaving clusters: taints and failures to eviction tasks on bindings, and tasks to their end.

    controller.py      Eviction: what must leave a cluster gets a task; tasks end when it is safe
    witnesses.py       whether others do not reach a Push cluster that looks dead, either
    taint_policies.py  ClusterTaintPolicies: conditions of clusters become taints
    failback.py        back to an earlier group that has been well for as long as asked for
    pace.py            how many begin, in the fleet and in each failure domain
    decisions.py       how long what is tolerated, when a task is over, when nobody is evicted

Taints evict nobody unless the operator turns that on; applications leave when their policies ask.
"""
