"""Many replies to one answer; pure, synchronous, no I/O.

lists.py      each cluster's list or Table taken apart once, its items unread; many to one
metadata_lists.py  which states of which objects a cluster has, in JSON or protobuf
sorting.py    many lists to one in the order of a field
field_filters.py  any field of an object, judged here where its cluster does not
failures.py   when some clusters fail: fail, or answer and warn
versions.py   per-cluster resourceVersions in one opaque string, and where a list goes on
watches.py    many event streams to one, with vectors that can be gone on from
events.py     one event: read as its cluster wrote it, written as the client wants it
discovery.py  what the fleet serves: the union; whose schemas it shows, which release it claims
"""
