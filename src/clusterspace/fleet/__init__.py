"""The fleet: many clusters usable as one. Three flows, and the member end of the second.

gateway/      1  request  -> route -> target clusters -> ask -> merge -> response
propagation/  2  template -> policy -> binding -> work, and statuses back
execution/       work -> member object: takeover, apply, prune, observe
membership/   3  join -> heartbeat -> leave
autoscaling/     load of the members -> replicas of templates
migration/    above them: a live cluster -> plan -> templates and policies, and back
page/            before the first: files and logins for browsers, which then ask as everybody does
interpretation/  below them: what people's scripts say of kinds of their own

The first five and the page are strangers: they meet only in the API of the hub, which may be ours
(`apiserver`) or any kube-apiserver.
"""
