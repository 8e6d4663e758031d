"""The declarative door: a MemberCluster invites an identity, and lets it go when it is deleted.

    MemberCluster ──> namespace, Role, binding, InternalMemberCluster      (hub)
    agent ──> InternalMemberCluster.status ──> MemberCluster.status, Cluster
    deletion ──> said ──> state Leave, Cluster deleted ──> agent is done ──> namespace, rights

places.py      where things are that a MemberCluster has
manifests.py   those things, as values
mirror.py      labels and taints of a MemberCluster onto its Cluster
reports.py     what agents told into what the MemberCluster says
heartbeats.py  silence by our own clock to a condition of its own
inviting.py    what the hub makes for a member, in order, again and again
enlisting.py   the Cluster of a member whose agent was heard, and its rights around it
leaving.py     said, told, withdrawn, forgotten; by force when the agent is silent
upkeep.py      every MemberCluster, kept as it is meant to be
usage.py       one look at a member into what an InternalMemberCluster tells
agent.py       the member end: heartbeats while it is in, cleanup when it is to go

The hub end never writes what an agent told, the member end never writes what it was told to do,
and neither touches a Cluster that came in by another door.
"""
