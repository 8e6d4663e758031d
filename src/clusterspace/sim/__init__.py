"""Made-up nodes, pods and workload controllers behind a real API: a member that runs nothing.

    API ──follow──> mirror ──> controllers ──plans──> API      workloads to pods
                      │    ──> lifecycle   ──steps──> API      pods to Running, and gone
                      └──────> placement, usage                room on nodes, numbers for `top`
    request ──> faults ──> API                                 what goes wrong on request
    request ──> pod_streams ──> logs, containers, listeners    what a pod says and does

Read in this order:

api.py          what the simulation asks of the API it lives behind, and nothing more
mirror.py       the objects as controllers see them: by name, and by owner
pod_states.py   active, ready, available: what workloads count
workloads/      Deployment, ReplicaSet, StatefulSet, DaemonSet, Job to pods, as plain decisions
controllers.py  workloads, worked on one after the other
scheduling.py   which node takes a pod; placement.py which pods are on which node
pods.py         Pending to Running to gone, as plain decisions; lifecycle.py carries them out
nodes.py        nodes with capacity; heartbeats.py keeps them there and alive
usage.py        how busy nodes and pods are, made up but steady
logs.py         text that grows with time and is never stored
shell/          a tiny language on files that exist only in memory
containers.py   what runs in a container: the shell, the log; its files
listeners.py    what listens on a pod's ports
streams/        exec, attach and port-forward on the wire
pod_streams.py  the doors into a pod, each from its request to its end
fault_rules.py  faults as rules; faults.py lets them happen

It never starts a process, opens a file or a socket, or looks at the machine it runs on.
"""
