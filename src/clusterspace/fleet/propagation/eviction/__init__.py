"""Leaving clusters: taints to eviction tasks on bindings, and tasks to their end.

    controller.py      Eviction: taints nobody tolerates become tasks; tasks end when it is safe
    taint_policies.py  ClusterTaintPolicies: conditions of clusters become taints
    decisions.py       how long a taint is tolerated, when a task is over, when nobody is evicted

Off unless the operator turns it on; ClusterTaintPolicies then still set taints that evict nobody.
"""
