"""Replicas of a workload over all its clusters: FederatedHPA and CronFederatedHPA.

    pods and metrics of every target cluster ──measures──> loads ──federated_hpa──> template: scale
    the clock ──cron_federated_hpa──> template: scale, or a FederatedHPA's bounds

measures.py             what the pods of one workload use, cluster by cluster
federated_hpa.py        FederatedHpaController: loads to the replicas of the template
cron_federated_hpa.py   CronFederatedHpaController: replicas at set times

The template's replicas are all that is written: who divides them over clusters is the scheduler, as
for a person who types `kubectl scale`. A cluster that cannot be asked counts as busy, never as
idle: a blip scales nothing down. The rules of numbers and windows are in `kube.autoscaling`.
"""
