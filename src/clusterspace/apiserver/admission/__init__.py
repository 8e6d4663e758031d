"""Admission: the hub's own say in what is written, between the rules of a kind and the store.

plugins.py        every rule, in the order in which it is asked: a new rule is a line in one of
                  its two lists
rights.py         rights that a URL does not show: what a body makes, names or sends
escalation.py     nobody grants what they do not hold
builtin_kinds.py  Namespaces, certificate requests, Nodes, Services, Ingresses, claims and volumes
pods.py           what pods get by their PriorityClass and RuntimeClass, and for lost nodes
nodes.py          what a node may write: itself and the pods on it
pod_security.py   pods held against the policy of their namespace
service_accounts.py  the account of a pod, its token and its secrets
limit_ranges.py   LimitRanges: defaults and bounds
quotas.py         ResourceQuotas: counted before anything is stored
federated_quotas.py  the same for FederatedResourceQuotas, which bindings take from
clusters.py       Clusters, MemberClusters, and where the credentials of a cluster may be used
autoscalers.py    FederatedHPAs and CronFederatedHPAs: completed and checked
services.py       MultiClusterServices and MultiClusterIngresses: checked
propagation.py    policies, placements, bindings, Works: completed, checked, with an ID for life
validating_policies.py  ValidatingAdmissionPolicy: expressions that a request must satisfy; what is
                  wrong with them if objects are of the kinds a policy names
mutating_policies.py  MutatingAdmissionPolicy: expressions that change what is written
webhooks.py       programs elsewhere that change or refuse what is written
policies.py       what policies share: bindings, parameters, conditions, the evaluation
matching.py       policies and webhooks as the store has them now, and which requests they are about
reviewed.py       a request as policies and webhooks see it
unenforced.py     warns of kinds and of fields of policies that are stored and not obeyed

A rule is a subclass of apiserver.state.Plugin, with those of its three methods that it needs:
`mutate` before the kind's rules prepare the object, `admit` after that, `validate` last of all. It
returns the object (changed or not) or refuses it, and may warn its author. It is asked for dry runs
too, and again when a write loses a race, so it keeps nothing of what it sees.

The checks of one object alone are pure functions named `*_causes` in apis/ (`policy_causes`,
`override_causes`, `placement_causes`, `member_cluster_causes`); a rule here calls them and refuses
the object with all causes they found. Checks that need the store or the user are here.
"""
