"""Deployment, ReplicaSet, StatefulSet, DaemonSet, Job to pods, as plain decisions.

    workload + what it owns + the time  ──plan_*──>  Plan(create, update, delete, status)

controller.py     which workloads a change concerns, and what each decides upon
plans.py          pods of a template; ControllerRevisions
deployments.py    as many pods as asked for: ReplicaSets and ReplicationControllers; Deployments:
                  one ReplicaSet per template, and the moves between them
stateful_sets.py  pods with names that stay, one after the other, and their claims
daemon_sets.py    one pod on every node that takes it
jobs.py           pods that end, and what their ends add up to
job_failures.py   how the end of a pod counts: failure and success policies, indexes
cron_jobs.py      Jobs at set times

Nothing here reads a clock or talks to anybody. A workload whose template is as its pods have it
never replaces a pod, whatever else about it changes.
"""
