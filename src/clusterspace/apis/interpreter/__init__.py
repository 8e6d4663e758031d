"""What is known of a kind: its replicas, its health, what it needs, what its cluster may keep.

kinds.py          the kinds we know something about, and where they keep the spec of their pods
replicas.py       how many replicas a template wants, what each needs, and how a share is written
dependencies.py   what a template needs beside it on a cluster
manifests.py      what a template loses when it leaves the hub, and what a member keeps
health.py         whether a member object does what it is there for
statuses.py       what a member reports of an object, and many such reports summed up
"""
