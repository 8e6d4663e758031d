"""API defaults of built-in kinds: what a kube-apiserver fills in when the user left it out.

    apply       walks an object and fills in every struct that has defaults; start here. Before
                them: fields with two names, and fields behind feature gates that are off
    rules       the vocabulary: a rule takes a struct and returns it with more in it
    pods        pods and storage: containers, probes, volumes, claims, classes
    workloads   Deployments, StatefulSets, DaemonSets, Jobs and what else makes pods
    governance  Services and policies, RBAC, admission, quota, flow control and the rest

In each: a table of what is always the same, then the structs that need a decision.

Defaults see an object in normal form, so a field that is absent was not set. They depend on the
object alone: what needs the request (a uid, the time, a user) is in `strategies`.
"""
