"""Our own kinds: Karmada's, KubeFleet's and about.k8s.io's, one module per noun; pure.

crds/                their CustomResourceDefinitions, a YAML file each
clusters.py, agents.py, member_clusters.py  a cluster, its agent, and the declarative way in
cluster_credentials.py  which Secret is whose: credentials are tied to one Cluster
parts.py             the names of our own parts, and of what each has on the hub
policies.py, placement_rules.py, policy_rules.py, override_rules.py  policies, and their rules
override_limits.py, confinement.py  what no override may change, and what never leaves its place
fleet_placements.py, fleet_placement_rules.py  the same for ClusterResourcePlacements
bindings.py, works.py  one template on its clusters; the manifests of one cluster
stamps.py            the labels, annotations and names by which these find each other
interpreter/         what is known of a kind: replicas, health, dependencies, what members keep
"""
