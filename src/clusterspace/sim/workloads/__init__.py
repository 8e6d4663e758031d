"""Deployment, ReplicaSet, StatefulSet, DaemonSet, Job to pods, as plain decisions.

    workload + what it owns + the time  ──plan_*──>  Plan(create, update, delete, status)

plans.py              what a decision may ask for
templates.py          templates to pods and to the hash that names a revision
revisions.py          ControllerRevisions: the history of a StatefulSet or DaemonSet
replica_sets.py       as many pods as asked for
rollouts.py           how fast replicas may move from old to new; the arithmetic, alone
deployment_parts.py   a Deployment and its ReplicaSets told apart
deployment_status.py  what a Deployment says of itself
deployments.py        one ReplicaSet per template, and the moves between them
stateful_sets.py      pods with names that stay, one after the other
daemon_sets.py        one pod on every node that takes it
jobs.py               pods that end
claims.py             storage that is always there

Nothing here reads a clock or talks to anybody. A workload whose template is as its pods have it
never replaces a pod, whatever else about it changes.
"""
