"""Agents at a hub that is a kube-apiserver: what lets one in, what it may do, what it is signed.

    token create west   a bootstrap token of Kubernetes' own kind, a note of whom it is for,
                        and the roles of the agent of `west`
    register            asks for a certificate with the token
    AgentApprovals      approves that, once for a token; kube-controller-manager signs it
    agent               asks for the next one with the one it has

On our own hub an agent is scoped by who it is (access/agents.py). Here the same rules are roles,
made for one agent; what a role cannot say is for the webhook, which asks the same AgentGuard.
"""

from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, cast

import structlog

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS
from clusterspace.apis.identities import REGISTRATION_GROUP
from clusterspace.apis.tunnels import LEASE_NAMESPACE
from clusterspace.apiserver.access.agents import AgentScope
from clusterspace.apiserver.access.rbac import RBAC_GROUP, Rule
from clusterspace.apiserver.identity.agents import agent_user, cluster_of_agent
from clusterspace.apiserver.identity.bootstrap_tokens import (
    CLUSTER,
    SPENT_ON,
    TYPE,
    secret_name,
    token_id_of,
)
from clusterspace.apiserver.identity.certificates.requests import (
    CLIENT_SIGNER,
    ApprovalDecision,
    Approved,
    Denied,
    Requester,
    Undecided,
    UnreadableRequest,
    judge_request,
    read_asked,
    requester_of,
)
from clusterspace.apiserver.kubernetes_hub.manifests import LABELS, NAMESPACE
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.controllers.controller import Done, Reconciler, Request, Result, Watch
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import NotFound
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

REQUESTS: Final = GroupVersionResource("certificates.k8s.io", "v1", "certificatesigningrequests")
_NOTES: Final = ResourcePath(GroupVersionResource("", "v1", "configmaps"), NAMESPACE)
_CLUSTER: Final = "cluster"
_EVENT_NAMESPACE: Final = "default"

_KEPT_SECONDS: Final = 30 * 24 * 3600.0
"""No token is good for that long."""

NOTE_PREFIX: Final = "token-"
"""What the name of a ConfigMap begins with that says which cluster a bootstrap token is for."""


# -- what `token create` makes ------------------------------------------------------------------


def role_name(cluster: str) -> str:
    """Return what the roles of a cluster's agent are called."""
    return f"clusterspace-agent-{cluster}"


def agent_objects(cluster: str) -> tuple[Object, ...]:
    """Return what the agent of one cluster needs at the hub: its namespace, roles and bindings.

    The same rules as on our own hub. Names with a random end cannot be listed in a role, so those
    of events and certificate requests are left open here: which event an agent writes the webhook
    looks at, and a certificate request holds nothing that is secret.
    """
    scope = AgentScope(cluster)
    events = Rule(("get", "create", "update", "patch"), ("", "events.k8s.io"), ("events",))
    request = Rule(("get",), (REQUESTS.group,), (REQUESTS.resource,))
    found: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": scope.execution_namespace, "labels": _labels()},
        }
    ]
    spaces = ("", scope.execution_namespace, CLUSTER_NAMESPACE, _EVENT_NAMESPACE, LEASE_NAMESPACE)
    for namespace in spaces:
        rules = [rule for rule in scope.rules(namespace) if rule.resources and not _is_common(rule)]
        rules += [request] if not namespace else []
        rules = [events] if namespace == _EVENT_NAMESPACE else rules
        found += _role(cluster, namespace, rules)
    return tuple(found)


def _is_common(rule: Rule) -> bool:
    """Whether everybody who is logged in may do this anyway, by Kubernetes' own roles."""
    return set(rule.groups) <= {"authorization.k8s.io", "authentication.k8s.io"}


def _labels() -> Object:
    return {"karmada.io/system": "true"}


def _role(cluster: str, namespace: str, rules: list[Rule]) -> list[Object]:
    scope, name = "" if namespace else "Cluster", role_name(cluster)
    metadata: Object = {"name": name, "labels": LABELS}
    if namespace:
        metadata["namespace"] = namespace
    api_version = f"{RBAC_GROUP}/v1"
    user = {"kind": "User", "apiGroup": RBAC_GROUP, "name": agent_user(cluster)}
    return [
        {
            "apiVersion": api_version,
            "kind": f"{scope}Role",
            "metadata": metadata,
            "rules": [rule.as_object() for rule in rules],
        },
        {
            "apiVersion": api_version,
            "kind": f"{scope}RoleBinding",
            "metadata": metadata,
            "subjects": [user],
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": f"{scope}Role", "name": name},
        },
    ]


def note_path(token_id: str) -> ResourcePath:
    """Return where it is noted whom a bootstrap token is for."""
    return _NOTES.named(NOTE_PREFIX + token_id)


def token_note(token_id: str, cluster: str) -> Object:
    """Return the note: beside the token, so that nobody who approves has to read Secrets."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NOTE_PREFIX + token_id, "namespace": NAMESPACE, "labels": LABELS},
        "data": {_CLUSTER: cluster},
    }


def token_secret(token: str, cluster: str, now: float, *, seconds: int) -> Object:
    """Return a bootstrap token as any kube-apiserver reads it.

    It keeps the secret itself: a kube-apiserver knows no digests.
    """
    token_id, _, secret = token.partition(".")
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "description": f"for the agent of {cluster}, by Clusterspace",
        "expiration": format_time(now + seconds),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": REGISTRATION_GROUP,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(token_id),
            "namespace": "kube-system",
            "annotations": {CLUSTER: cluster},
        },
        "type": TYPE,
        "data": {key: b64encode(value.encode()).decode() for key, value in data.items()},
    }


# -- who is signed ------------------------------------------------------------------------------


class AgentApprovals(Reconciler):
    """Approves certificate requests of agents by the rules of our own hub, and denies others'.

    Requests that are neither an agent's nor made with a token of ours are left to whoever else
    approves there. Any number of these may run: a token is spent by a write that one of them wins.
    """

    name = "agent-approvals"
    workers = 2

    def __init__(self, hub: ClusterClient, caches: HubCaches) -> None:
        self._hub = hub
        self._requests = caches.informer(REQUESTS)

    def watches(self) -> Iterable[Watch]:
        """Return certificate requests."""
        yield Watch(self._requests)

    async def reconcile(self, request: Request) -> Result:
        """Approve or deny one request, if that is ours to do."""
        place = ResourcePath(REQUESTS, name=request.name)
        asked_for = await self._hub.find(place)
        if asked_for is None or find_at(asked_for, "spec", "signerName") != CLIENT_SIGNER:
            return Done()
        conditions = cast("list[Object]", find_at(asked_for, "status", "conditions") or [])
        if any(find_condition(conditions, kind) for kind in ("Approved", "Denied", "Failed")):
            return Done()
        match await self._judge(asked_for):
            case Approved():
                await self._settle(place, asked_for, "Approved", "the agent of its cluster")
            case Denied(reason):
                await self._settle(place, asked_for, "Denied", reason)
            case Undecided():
                pass  # somebody else's, or for a person to look at
        return Done()

    async def _judge(self, asked_for: Object) -> ApprovalDecision:
        username, groups = requester_of(asked_for)
        token_id = token_id_of(username)
        note = await self._hub.find(note_path(token_id)) if token_id else None
        cluster = str(find_at(note, "data", _CLUSTER) or "") or cluster_of_agent(username, groups)
        if not cluster:
            return Undecided("the requester is not the agent of a cluster")
        try:
            asked = read_asked(asked_for)
        except UnreadableRequest as error:
            return Denied(str(error))
        if note is None:
            return judge_request(asked, Requester(cluster))
        spent_on = annotations_of(note).get(SPENT_ON, "")
        existing = await self._hub.find(ResourcePath(CLUSTERS, name=cluster))
        bearer = Requester(
            cluster=cluster,
            has_token=True,
            token_is_spent=spent_on not in ("", uid_of(asked_for)),
            token_predates_cluster=existing is not None and _born(note) < _born(existing),
        )
        decision = judge_request(asked, bearer)
        if isinstance(decision, Approved) and not spent_on:
            # Before it is approved: a crash in between leaves a token that is spent on this very
            # request, which is approvable again. A Conflict means that another was quicker, and
            # the next attempt sees on what it was spent.
            annotations = {**annotations_of(note), SPENT_ON: uid_of(asked_for)}
            spent = with_metadata(note, annotations=annotations)
            await self._hub.update(note_path(token_id), spent)
        return decision

    async def _settle(
        self, place: ResourcePath, asked_for: Object, kind: str, message: str
    ) -> None:
        condition = {
            "type": kind,
            "status": "True",
            "reason": "AutoApproved" if kind == "Approved" else "NotAllowed",
            "message": message,
        }
        settled = with_value(asked_for, [condition], "status", "conditions")
        await self._hub.update(place.with_subresource("approval"), settled)
        _log.info("certificate request settled", request=name_of(asked_for), verdict=kind)


def _born(kube_object: Object) -> float:
    return parse_time(str(metadata_of(kube_object).get("creationTimestamp")))


async def forget_notes(hub: ClusterClient, now: float) -> None:
    """Delete the notes of tokens that ended long ago; Kubernetes removes the tokens themselves."""
    for note in await hub.list_objects(_NOTES):
        if name_of(note).startswith(NOTE_PREFIX) and now - _born(note) > _KEPT_SECONDS:
            with suppress(NotFound):
                await hub.delete(_NOTES.named(name_of(note)), DeleteOptions(uid_of(note)))
