"""Which rules of our own hub hold on a kube-apiserver, by what, and which cannot.

`clusterspace doctor` says it of a hub, docs/guides/kubernetes-hub.md says it to people; a test
keeps the page equal to these tables.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Promise:
    """A rule that holds, and what makes it hold: it does not while one of them is missing."""

    rule: str
    says: str
    webhooks: tuple[str, ...] = ()
    """Entries of our webhook configuration."""
    policies: tuple[str, ...] = ()
    """ValidatingAdmissionPolicies: they hold on while the webhook does not answer."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A rule of our own hub that an API server has no place for, and what holds instead."""

    rule: str
    says: str


PROMISES: Final = (
    Promise(
        "names and IDs of clusters",
        "a name that may be used, an ID that no other Cluster has and that never changes",
        ("kinds",),
        ("clusterspace-cluster-names",),
    ),
    Promise(
        "addresses of clusters",
        "no member is at a loopback, link-local or metadata address, or at the hub's own",
        ("kinds",),
    ),
    Promise(
        "where credentials go",
        "said by those alone who may `update` `clusters/credentials`",
        ("kinds",),
        ("clusterspace-cluster-credentials", "clusterspace-member-identity"),
    ),
    Promise(
        "servers that agents let in",
        "named by those alone who may `update` `clusters/tunnel`",
        policies=("clusterspace-tunnel-servers",),
    ),
    Promise(
        "which clusters answer",
        "said, besides the leader, by those alone who may `update` `clusters/witness`",
        policies=("clusterspace-witnesses",),
    ),
    Promise(
        "what runs did",
        "said by those alone who may `update` `clusterstagedupdateruns/progress`",
        policies=("clusterspace-run-records",),
    ),
    Promise(
        "what snapshots hold",
        "written by those alone who may `update` `clusterresourcesnapshots/contents`",
        ("kinds",),
        ("clusterspace-snapshot-contents",),
    ),
    Promise(
        "Secrets of clusters",
        "tied to one Cluster and to the address it has",
        ("credentials",),
    ),
    Promise("ways to join", "push, pull or a MemberCluster: one of them for a name", ("kinds",)),
    Promise(
        "policies, overrides, placements",
        "completed, and refused where they cannot be meant",
        ("kinds",),
    ),
    Promise(
        "bindings",
        "about one object of their own namespace, for life",
        ("kinds",),
        ("clusterspace-binding-subjects",),
    ),
    Promise(
        "permanent IDs",
        "given once, put back when left out, never changed",
        ("kinds",),
        ("clusterspace-permanent-ids",),
    ),
    Promise(
        "what bindings and Works carry",
        "nobody sends out what they may not read, or grants on members what they do not hold",
        ("kinds",),
    ),
    Promise(
        "agents",
        "write about their own cluster alone, and set no field of an operator",
        ("kinds", "agents"),
        ("clusterspace-agents-names",),
    ),
    Promise(
        "controllers",
        "mark what users wrote and change nothing else of it, remove what they made",
        ("controllers",),
        ("clusterspace-controllers-limits", "clusterspace-controllers-subresources"),
    ),
    Promise(
        "warnings",
        "about kinds and fields that are stored and that nothing acts on",
        ("kinds",),
    ),
)

SHORTFALLS: Final = (
    Shortfall(
        "late writes",
        "the API server does not compare a write with the Lease of its leader: controllers and "
        "agents read the Lease right before each write, and one that is frozen between the two "
        "can still make that write",
    ),
    Shortfall(
        "impersonation",
        "whoever may impersonate any user may become an agent or a part of the control plane: "
        "grant `impersonate` by name",
    ),
    Shortfall(
        "agents that left",
        "their certificates count until they end, a day at most: `clusterspace unregister` takes "
        "their roles away, to delete the Cluster alone does not",
    ),
    Shortfall(
        "tokens",
        "a bootstrap token is kept as it is and logs in until it ends, though it is signed for "
        "once: an hour unless `--ttl` says otherwise",
    ),
    Shortfall(
        "clusters/proxy",
        "the API server has no such path: members are reached at the fleet address, and the right "
        "`clusters/proxy` says who may",
    ),
    Shortfall(
        "owners",
        "to change owners needs the right to delete for objects of the fleet alone: for others "
        "switch on the plug-in OwnerReferencesPermissionEnforcement",
    ),
    Shortfall(
        "rights in Works",
        "only rights that roles give are known when a Work carries roles: those of another "
        "authorizer do not count",
    ),
    Shortfall(
        "pods are templates",
        "the API server completes and refuses pods as if they ran there: switch off its plug-ins "
        "ServiceAccount, Priority, RuntimeClass, DefaultTolerationSeconds and "
        "StorageObjectInUseProtection, as far as it runs no pods of its own",
    ),
    Shortfall(
        "extension servers",
        "kinds behind an APIService pass none of these rules, and placements cannot select them: "
        "on Karmada's own API server that is Clusters",
    ),
)
