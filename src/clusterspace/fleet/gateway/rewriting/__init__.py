"""Bodies and queries in the words of the other side: the client's on the way out, the cluster's in.

outbound.py   what one cluster answered, with the names the client used
inbound.py    what a client sends: JSON, YAML, protobuf, and the four kinds of patch
protobuf.py   protobuf bodies changed field by field, what is not understood kept
queries.py    selectors and resourceVersions of a URL

Which fields hold names is said once, in `clusterspace.fleet.gateway.renaming.places`.
"""
