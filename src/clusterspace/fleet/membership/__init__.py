"""Flow 3: a cluster joins, is watched over, and leaves.

    join ──> Cluster ──> heartbeat ──> Ready, taints ──> leave

names.py              what things are called on both sides, and where they are
manifests.py          the objects a join puts on either side, as values
identity.py           who a cluster is; the same cluster twice is refused
journal.py            what a join has made so far, to be taken back when it fails
tokens.py             a service account's token: from a Secret, else asked for
member_access.py      the member's end of a push join
push_join.py          the push join, step by step
hub_discovery.py      an address and a fingerprint to a hub that can be trusted
agent_credentials.py  an agent's certificate: asked for, used, replaced in time
agent_manifests.py    the objects of a pull join, as values
pull_join.py          the pull join, step by step, from the member's side
registration.py       the agent's credentials kept current; its end noticed
connections.py        a Cluster and its Secrets to a connection
health.py             alive and well: asked, judged, believed when it lasts
summaries.py          nodes and pods to how much room there is
status.py             one look at a member into Cluster.status
push_status.py        that look for every Push cluster, again and again
pull_status.py        that look by an agent, for its own cluster
lease.py              the heartbeat of a Pull cluster
monitor.py            Pull clusters that fall silent are Unknown, unless it is us
taints.py             not ready or unreachable to taints; taints people set
cleaning.py           what a membership left on the member, removed
pull_leave.py         the agent taken down on its member
leave.py              withdraw, clean, forget; by force when a cluster is dead
upkeep.py             finalizer, execution namespace and taints of every Cluster
overview.py           Clusters as a table for people
member_clusters/      the declarative door: MemberCluster and InternalMemberCluster

It never removes from a member what our hub did not make, never deletes a placed object by itself,
and never doubts most of the fleet before it doubts the hub.
"""
