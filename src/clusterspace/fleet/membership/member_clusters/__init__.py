"""The declarative door: a MemberCluster invites an identity, and lets it go when it is deleted.

    MemberCluster ──> namespace, Role, binding, InternalMemberCluster      (hub)
    agent ──> InternalMemberCluster.status ──> MemberCluster.status, Cluster
    deletion ──> said ──> state Leave, Cluster deleted ──> agent is done ──> namespace, rights

controller.py  every MemberCluster: invited, heard, enlisted as a Cluster, let go
manifests.py   what a MemberCluster has on the hub, and where; its labels and taints on the Cluster
status.py      what agents reported, and their silence, into MemberCluster.status
leaving.py     the way out, step by step; by force when the agent is silent
agent.py       the member end: heartbeats while it is in, cleanup when it is to go

The hub end never writes what an agent reports, the member end never writes what it is asked for,
and neither touches a Cluster that came in by another door.
"""
