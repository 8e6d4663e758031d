"""Which objects may be sent to members: never the hub's own, and only from their own namespace.

    of namespace X                  may carry
    ResourceBinding                 objects of X
    Work of such a binding          objects of X
    of no namespace
    ClusterResourceBinding          objects without a namespace

Rights on the hub are given by namespace, and controllers act for everybody. So whoever acts on a
binding or a Work asks here first, wherever it came from: the hub's admission refuses most of what
is wrong, but another API server may be the hub, and objects are older than rules.

The hub's own namespaces and its credentials are never sent, whoever asks.
"""

from typing import Final

from clusterspace.apis import member_clusters
from clusterspace.apis.bindings import is_for_cluster_scope, template_of
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, EXECUTION_PREFIX
from clusterspace.apis.interpreter.kinds import SECRET, kind_of
from clusterspace.apis.works import binding_key_of
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupKind

NAMESPACE: Final = GroupKind("", "Namespace")

_OWN_NAMESPACES: Final = frozenset({"karmada-system", CLUSTER_NAMESPACE, "fleet-system"})
_OWN_PREFIXES: Final = (EXECUTION_PREFIX, "kube-", member_clusters.NAMESPACE_PREFIX)

_CREDENTIALS: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}
)
"""Types of Secrets that let whoever has one act on the hub."""


def is_reserved_namespace(namespace: str) -> bool:
    """Whether a namespace belongs to a control plane, ours or a member's."""
    return namespace in _OWN_NAMESPACES or namespace.startswith(_OWN_PREFIXES)


def why_at_home(kube_object: Object) -> str:
    """Return why an object never leaves the hub; empty when it may.

    A Secret that a Cluster names as its credentials stays as well, and does not know it.
    """
    kind = kind_of(kube_object)
    namespace = name_of(kube_object) if kind == NAMESPACE else namespace_of(kube_object)
    if is_reserved_namespace(namespace):
        return f"namespace {namespace} belongs to the control plane"
    if kind == SECRET and kube_object.get("type") in _CREDENTIALS:
        return f"a Secret of type {kube_object['type']} is a credential of the hub"
    return ""


def why_not_carried(binding: Object, *, is_namespaced: bool | None = None) -> str:
    """Return why a binding may not carry what it names; empty when it may.

    `is_namespaced` is the scope of the kind it names, if that is known.
    """
    about = template_of(binding)
    if is_for_cluster_scope(binding):
        if about.namespace or is_namespaced:
            return (
                "a ClusterResourceBinding carries objects without a namespace, and "
                f"{about.kind} {about.key} has one"
            )
        return ""
    own = namespace_of(binding)
    if about.namespace != own:
        where = f"in namespace {about.namespace}" if about.namespace else "in no namespace"
        return f"a ResourceBinding of {own} carries objects of {own}, not {about.kind} {where}"
    if is_namespaced is False:
        return f"a ResourceBinding of {own} carries objects of {own}, and {about.kind} is in none"
    if is_reserved_namespace(own):
        return f"namespace {own} belongs to the control plane"
    return ""


def why_not_ordered(work: Object, manifest: Object, *, is_namespaced: bool) -> str:
    """Return why a Work may not order a manifest; empty when it may.

    `is_namespaced` is the scope the kind has on the member, which need not be the hub's. Works
    without a ResourceBinding (of namespaces, of cluster-wide policies, by hand) are not confined:
    whoever writes those has rights on a whole member.
    """
    namespace, slash, _ = binding_key_of(work).partition("/")
    if not slash:
        return ""
    if not is_namespaced:
        return f"its binding is of namespace {namespace}, and {manifest.get('kind')} is in none"
    if namespace_of(manifest) != namespace:
        return f"its binding is of namespace {namespace}, and it is not in there"
    return ""
