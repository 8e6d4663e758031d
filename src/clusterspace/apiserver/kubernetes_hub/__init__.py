"""A kube-apiserver as the hub: the rules of ours, carried there.

manifests.py   what `clusterspace init` puts on it: namespaces, accounts, roles, the webhook
policies.yaml  rules that CEL can say, as ValidatingAdmissionPolicies
adoption.py    definitions that are there already: of versions we know, or refused
reviews.py     an AdmissionReview, answered by rules
rules.py       which rules those are: our own hub's, with what the API server does not do itself
agents.py      what lets an agent in, what it may do, and who approves its certificate
promises.py    what holds there, and what cannot: for `doctor` and the guide
reading.py     what rules look at, read from the API server: objects, kinds, rights
"""
