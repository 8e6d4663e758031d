"""What is known of a kind: its replicas, its health, what it needs, what its cluster may keep.

kinds.py          the kinds we know something about
pod_templates.py  where they keep the specification of their pods
replicas.py       how many replicas a template wants, and what each needs
dependencies.py   what a template needs beside it on a cluster
revision.py       how many replicas one cluster is to run, written into its copy
pruning.py        what the hub wrote into a template, taken out again
retention.py      what a member keeps of an object when a manifest is put over it
reflection.py     what the hub is told of a member object's status
health.py         whether a member object does what it is there for
aggregation.py    many clusters' reports summed up; job_results.py does it for Jobs
"""
