"""Made-up nodes, pods and workload controllers behind a real API: a member that runs nothing.

    API ──follow──> Mirror ──> controllers ──plans──> API      workloads to pods
                      │    ──> lifecycle   ──steps──> API      pods to Running, and gone
                      └──────> scheduling, metrics_api         room on nodes, numbers for `top`
    request ──> faults ──> API                                 what goes wrong on request
    request ──> pod_subresources ──> shell/, streams/          what a pod says and does

Read in this order:

api.py              what the simulation asks of the API, and its objects by name and by owner
local_api.py        that API in the same process: the API server's own verbs, without the network
pods.py             a pod from Pending to Running to gone, as plain decisions
plans.py            what a controller may ask for; adoption and release
workloads/          Deployment, ReplicaSet, StatefulSet, DaemonSet, Job to pods, as plain decisions
services.py         Endpoints and EndpointSlices of Services, and slices of Endpoints made by hand
volumes.py          claims and volumes, bound to each other
disruption.py       how many pods may be evicted: PodDisruptionBudgets
autoscaling.py      replicas by the made-up load of their pods
controllers.py      the list of controllers, worked on one after the other
scheduling.py       which node takes a pod, who leaves for it, and which pods are on which node
containers.py       what runs in containers: files, environment, programs and their logs
images.py           images that cannot be pulled, and pods that wait for them
lifecycle.py        carries out what happens to pods next
nodes.py            nodes with capacity and the heartbeats that keep them alive; nodes that fall
                    silent or go, and what becomes of their pods
metrics_api.py      metrics.k8s.io: how busy nodes and pods are, made up but steady
pod_subresources.py log, exec, attach and port-forward, each from its request to its end
shell/              what exec runs: a tiny language on files that exist only in memory
streams/            exec, attach and port-forward on the wire
faults.py           faults as rules, and what they do to requests

A new flag of `clusterspace sim` is an option in cli.commands.servers and a field of SimSettings in
roots.settings; roots.sim passes it on to the module here that obeys it.

It never starts a process, opens a file or a socket, or looks at the machine it runs on.
"""
