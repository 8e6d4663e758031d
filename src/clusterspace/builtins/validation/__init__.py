"""Validation of built-in kinds: everything a kube-apiserver refuses an object for.

validate     which rules belong to which kind; start here
rules        the vocabulary of checks
formats      texts and numbers of set forms: ports, keys, addresses, schedules
metadata     names, labels, annotations, owners, finalizers; label and node selectors
resources    requests and limits
containers   one container: environment, probes, security, ports, mounts
pods         pods and pod templates: where they may run, their spec, what may change
volumes      where volumes come from: sources, claims, the volumes of a pod
workloads    Deployments, StatefulSets, DaemonSets and their kin; autoscalers, budgets
jobs         Jobs and CronJobs
networking   Services and endpoints, Ingresses, NetworkPolicies, address ranges
storage      volumes, storage classes, CSI
core         ConfigMaps, Secrets, Events, Leases, nodes, quotas, limits, priorities
access       RBAC and certificate requests
admission    webhook configurations, admission policies and their bindings
extension    API services; where a webhook is said to be
flow_control FlowSchemas and priority levels
definitions  CustomResourceDefinitions, whole and version by version
"""
