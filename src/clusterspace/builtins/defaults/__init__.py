"""API defaults of built-in kinds: what a kube-apiserver fills in when the user left it out.

    apply       walks an object and fills in every struct that has defaults; start here
    rules       the vocabulary: a rule takes a struct and returns it with more in it
    aliases     fields that are two names for one thing, kept in step
    gated       fields behind feature gates that are off: accepted and dropped
    pods        pods, their containers, probes and volumes
    workloads   Deployments, StatefulSets, DaemonSets, Jobs and what else makes pods
    traffic     Services, endpoints, Ingresses and NetworkPolicies
    storage     volumes, claims and storage classes
    governance  RBAC, admission, quota, flow control, custom resources and the rest

Defaults see an object in normal form, so a field that is absent was not set. They depend on the
object alone: what needs the request (a uid, the time, a user) is in `strategies`.
"""
