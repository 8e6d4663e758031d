"""The hub's own say in what is written: plug-ins between an object's rules and the store.

chain.py       the order in which plug-ins are asked
namespaces.py  no new content in a namespace that is not there or is ending
services.py    addresses and node ports for Services
clusters.py    names that can be used, one ID for one cluster, addresses a member may have
cluster_secrets.py  credentials of a cluster: tied to where it is when they get their owner
member_clusters.py  rules of MemberClusters; one door for one cluster
policies.py    what authors of policies left out is filled in, what cannot be meant is refused
bindings.py    what a binding is about: in its own namespace, and for life
placements.py  the same for ClusterResourcePlacements; what they select must be served
permanent_ids.py  IDs of policies, bindings and works: given once, never changed
unenforced.py  warns of kinds that would steer an API server, and that this one does not obey

A plug-in sees the object as it would be stored, returns it (changed or not) or refuses it, and may
warn its author. It is asked for dry runs too, so it keeps nothing of what it sees.
"""
