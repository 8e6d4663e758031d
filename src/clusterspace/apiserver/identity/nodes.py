"""Who is a node, and for which ServiceAccounts it may have tokens."""

from typing import Final

from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.state import HubState
from clusterspace.errors import ApiError
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, uid_of
from clusterspace.kube.resources import GroupResource

NODE_USER: Final = "system:node:"
"""What the name of a kubelet's user begins with; the rest is the name of its node."""
_GROUP: Final = "system:nodes"


def node_of(user: User) -> str | None:
    """Return the node a user is, None for everybody else; empty for a node without a name."""
    if not user.name.startswith(NODE_USER) or _GROUP not in user.groups:
        return None
    return user.name.removeprefix(NODE_USER)


async def token_refusal(
    hub: HubState, user: User, namespace: str, account: str, request: Object
) -> ApiError | None:
    """Return why a node may not have a token of an account: it runs no pod that would use it."""
    node = node_of(user)
    if node is None:
        return None
    reference: Object = find_at(request, "spec", "boundObjectRef") or {}
    pod = None
    if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get(
        "name"
    ):
        why = "node requested token not bound to a pod"
    elif not reference.get("uid"):
        why = "node requested token with a pod binding without a uid"
    else:
        pod = await find_object(hub, "", "pods", namespace, str(reference["name"]))
        if pod is None:
            return statuses.not_found(GroupResource("", "pod"), str(reference["name"]))
        if reference["uid"] != uid_of(pod):
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the "
                "UID in record. The object might have been deleted and then recreated"
            )
        elif find_at(pod, "spec", "nodeName") != node:
            why = "node requested token bound to a pod scheduled on a different node"
        else:
            return None
    return statuses.forbidden(GroupResource("", "serviceaccounts"), account, why)
