"""What changes in a manifest on its way to one cluster; pure, from values to values.

    policies that match ──in order──> rules for this cluster ──in order──> overriders ──> manifest

    images.py      image references: registry, repository, tag; and changing one of them
    containers.py  images, commands and arguments of the containers of a workload
    documents.py   JSON and YAML kept as text in a field, such as a file in a ConfigMap
    overriders.py  the overriders of one rule, in the order in which they take effect
    policies.py    which policies and rules apply to an object in a cluster, and what they did

An overrider that cannot be applied raises OverrideFailed; a manifest with half of its overrides
is never returned.
"""
