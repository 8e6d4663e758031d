"""Flow 3: a cluster joins, is watched over, and leaves.

    join ──> Cluster ──> heartbeat ──> Ready, taints ──> leave

Join:
    push_join.py      the push join, step by step
    pull_join.py      the pull join, step by step, from the member's side; the hub found by its pin
    registration.py   an agent's certificate and where its hub is; renewed, and its end noticed
    member_access.py  the member's end: who it is, what is made there, journaled; tokens for the hub
    manifests.py      the objects on either side, as values: their names, their paths, their content

Watch over:
    controller.py     finalizer, execution namespace and taints of every Cluster, and its leave;
                      not ready or unreachable to taints, and the taints people set
    status.py         one look at a member into Cluster.status
    room.py           how much room there is: all in all, and node by node
    impersonation.py  lets users reach members whoever joined them, and says where they cannot
    health.py         probes a member, and believes a change only when it lasts
    leases.py         the heartbeat of Pull clusters; who falls silent is Unknown, unless it is us
    witnesses.py      a second place that looks at Push clusters which are not ready
    watchdogs.py      who stops exclusive copies on Push clusters, heard and acknowledged
    remedies.py       what conditions of a cluster call for, by Remedies, in its status
    consumers.py      programs that are told of clusters, with tokens of their own that end
    tunnels.py        how users reach a Pull member: the connections its agent keeps to servers
    overview.py       Clusters as a table for people

Leave:
    leave.py          withdraw, clean, forget; by force when a cluster is dead; agents taken down

For all three:
    connections.py    a Cluster and its Secrets to a connection
    member_clusters/  the declarative door: MemberCluster and InternalMemberCluster

It never removes from a member what our hub did not make, never deletes a placed object by itself,
and never doubts most of the fleet before it doubts the hub.
"""
