"""Validation of built-in kinds: everything a kube-apiserver refuses an object for.

validate        which rules belong to which kind; start here
rules           the vocabulary of checks
formats         texts and numbers of set forms: ports, keys, addresses
domains         names that say whose they are
schedules       cron schedules
metadata        names, labels, annotations, owners, finalizers
selectors       label and node selectors
pods/           pods and pod templates
workloads       Deployments, StatefulSets, DaemonSets and their kin
jobs            Jobs and CronJobs
services        Services and endpoints
networking      Ingresses, NetworkPolicies, address ranges
scaling         autoscalers and disruption budgets
claims          PersistentVolumeClaims, alone and as templates
volume_sources  where a volume comes from
storage         volumes, storage classes, CSI
configuration   ConfigMaps, Secrets, Events, Leases
cluster         nodes, quotas, limits, priorities
access          RBAC and certificate requests
extension       webhooks, admission policies, flow control, custom resources
"""
