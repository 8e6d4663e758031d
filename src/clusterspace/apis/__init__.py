"""Our own kinds: Karmada's, KubeFleet's, about.k8s.io's and a few of ours, a module per noun; pure.

crds/                their CustomResourceDefinitions, a YAML file each
clusters.py, member_clusters.py  a cluster and whose its credentials are; the declarative way in
identities.py        how agents and the components of the control plane are named at the hub, and
                     which leadership a write of theirs belongs to
tunnels.py           through which servers Pull clusters are reached
witnesses.py         who besides the leader looks at Push clusters, and what they saw
policies.py          policies: which objects they mean, what the hub adds and refuses
quotas.py            FederatedResourceQuotas: what they may say, what bindings take of them
autoscalers.py       FederatedHPAs and CronFederatedHPAs: completed, checked, when rules are due
cluster_properties.py  nodes, CPU and memory of clusters, and which of them placements mean
affinities.py        which clusters are meant: by name, label, provider, region or zone
interpreters.py      customizations and webhooks that interpret kinds: what they are asked about
registries.py        ResourceRegistries: which kinds of which clusters Karmada's search shows
overrides.py         override policies: what no override may change, what the hub refuses
fleet_overrides.py   KubeFleet's overrides: what they select and change, what the hub refuses
fleet_placements.py  KubeFleet's placements: names, states, what the hub adds and refuses
envelopes.py         KubeFleet's envelopes: manifests for members that do nothing on the hub
differences.py       how a member's object differs, as Works report it
staged_updates.py    KubeFleet's staged update runs, strategies and approval requests
rollouts.py          staged rollouts of policies: states of templates, who has which, runs
consumers.py         programs that are told of clusters: their profiles, and Secrets with tokens
migrations.py        what the hub keeps of a live cluster that is taken in, and of how it was before
services.py          Services between clusters: what may be exported, who provides and consumes
works.py             bindings and Works: one template on its clusters; what never leaves its place
estimates.py         what a cluster can still take, node by node and by its quotas; counted, bounded
exclusive.py         workloads of which two copies must never run: marked, stopped, promised for
third_party.py       kinds of well-known projects, as data: replicas, pods, statuses, needs
kinds.py             the kinds we know something about, and where their pods are specified
stamps.py            the labels, annotations and names by which these find each other
interpreter/         what is known of a kind: replicas, health, dependencies, what members keep
"""
