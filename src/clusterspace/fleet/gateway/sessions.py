"""Which cluster a command is at, so that what it asks next stays there.

    kubectl logs deploy/web.clusterspace.m1
      GET  …/deployments/web.clusterspace.m1     names the cluster
      LIST …/pods?labelSelector=app%3Dweb        means the pods of that Deployment, and does not say

Such a list is told from any other list of pods by three things together: it is of the same run of
the same command, the command is one that goes on from an object to its pods, and it selects exactly
what that object selects. Where one of them is in doubt, the list is one of every cluster.

kubectl gives each run a session of its own and says so in every request. One that does not is known
by its connection, which it shares with nobody; unless something on the way shares connections out.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.names import HUB, Naming
from clusterspace.fleet.gateway.routes import Reach, Route
from clusterspace.kube.selectors import (
    LabelSelector,
    Operator,
    label_selector_of,
    parse_label_selector,
)

REMEMBERED_SECONDS: Final = 60.0
"""A command asks at once, but waits up to this long for the first pod to appear."""

_MOST_REMEMBERED: Final = 10_000
_MOST_SESSION_LENGTH: Final = 64
_GOING_ON: Final = frozenset({"attach", "exec", "logs", "port-forward"})
"""The commands that take an object and go on to its pods."""
_KUBECTL: Final = "kubectl/"
_PASSED_ON: Final = ("forwarded", "via", "x-forwarded-for")
"""Headers by which something on the way says that it speaks for others."""
_TYPED: Final = ("*/*", "application/vnd.kubernetes.protobuf")
"""What clients accept that know the kinds they ask for."""
_RUN: Final = "gateway.run"
_NARROWING: Final = ("fieldSelector", "continue", "limit")
"""What nobody says who only goes on to the pods of an object."""

_WITH_SELECTORS: Final = frozenset(
    {
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
    }
)
_WITH_LABELS: Final = frozenset({("", "replicationcontrollers"), ("", "services")})
_SAME: Final = {
    Operator.EQUALS: Operator.IN,
    Operator.DOUBLE_EQUALS: Operator.IN,
    Operator.NOT_EQUALS: Operator.NOT_IN,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command, by one user."""

    user: str
    session: str


def run_of(context: RequestContext) -> Run | None:
    """Return the run a request belongs to; None when it is of another command, or unclear."""
    session = context.header("kubectl-session")
    if session:
        command = context.header("kubectl-command").rpartition(" ")[2]
        is_known = command in _GOING_ON and len(session) <= _MOST_SESSION_LENGTH
        return Run(context.user.name, session) if is_known else None
    # Whether kubectl asks, by itself, for what it will look into. What it only shows or prunes it
    # gets as plain JSON, and means every cluster: `apply --prune` too selects by labels after it
    # has got objects by name.
    accept = context.header("accept")
    is_direct = not any(context.header(name) for name in _PASSED_ON)
    is_kubectl = context.header("user-agent").startswith(_KUBECTL)
    if not (is_direct and is_kubectl and any(each in accept for each in _TYPED)):
        return None
    return Run(context.user.name, context.request.connection_memory.setdefault(_RUN, uuid4().hex))


class _Spec(msgspec.Struct):
    selector: dict[str, Any] | None = None


class _Workload(msgspec.Struct):
    """As much of an object as tells which pods are its own."""

    spec: _Spec | None = None


_workloads: Final = msgspec.json.Decoder(_Workload)


def selector_in(group: str, resource: str, body: bytes) -> LabelSelector | None:
    """Return the selector of an object's pods; None when it has none, or cannot be read."""
    kind = (group, resource)
    if kind not in _WITH_SELECTORS and kind not in _WITH_LABELS:
        return None
    try:
        spec = _workloads.decode(body).spec
        written = spec.selector if spec is not None else None
        selector = label_selector_of({"matchLabels": written} if kind in _WITH_LABELS else written)
    except (msgspec.DecodeError, MalformedSelector):
        return None
    return selector if selector.requirements else None


class Sessions:
    """What runs of commands have found, for a minute; the oldest goes when there is too much."""

    def __init__(self, clock: Clock, *, most: int = _MOST_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[bytes, _Found] = OrderedDict()

    def note(self, run: Run, namespace: str, selector: LabelSelector, cluster: str) -> None:
        """Remember that a run has found an object with this selector in a cluster."""
        key, now = _key(run, namespace, selector), self._clock.monotonic()
        known = self._found.get(key)
        # Two objects of one run with the same selector in two clusters: it is not said which one's
        # pods are meant next. That is remembered too, or a third request would seem certain again.
        is_same = known is None or now >= known.until or known.cluster == cluster
        self._found[key] = _Found(cluster if is_same else None, now + REMEMBERED_SECONDS)
        self._found.move_to_end(key)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def find(self, run: Run, namespace: str, selector: LabelSelector) -> str | None:
        """Return the cluster in which a run has found the object with this selector.

        None when it has found none, or two.
        """
        known = self._found.get(_key(run, namespace, selector))
        return known.cluster if known and self._clock.monotonic() < known.until else None

    def note_found(self, context: RequestContext, route: Route, reply: Reply) -> None:
        """Remember where a command has found an object that has pods.

        The hub's own objects are templates, and their pods are wherever they were propagated to.
        """
        info, run = route.info, run_of(context)
        is_found = reply.failure is None and reply.cluster != HUB
        if run is None or not is_found or info.verb != "get" or info.subresource:
            return
        selector = selector_in(info.group, info.resource, reply.body)
        if selector is not None:
            self.note(run, info.namespace, selector, reply.cluster)

    def keep_in_place(self, context: RequestContext, route: Route) -> Route:
        """Return a route for pods as one to the cluster its command is at, where that is known."""
        info = route.info
        is_pods = (info.group, info.resource, info.subresource) == ("", "pods", "")
        is_read = info.verb in ("list", "watch") and not info.name
        if route.reach is not Reach.ALL or not (is_pods and is_read and info.namespace):
            return route
        run = run_of(context)
        if run is None or any(info.query.get(key) for key in _NARROWING):
            return route
        try:
            selector = parse_label_selector(info.query.get("labelSelector"))
        except MalformedSelector:
            return route  # for the clusters to refuse
        cluster = self.find(run, info.namespace, selector)
        if cluster is None:
            return route
        return replace(route, reach=Reach.ONE, naming=Naming(cluster, qualifies_names=True))


@dataclass(frozen=True, slots=True)
class _Found:
    cluster: str | None
    until: float


def _key(run: Run, namespace: str, selector: LabelSelector) -> bytes:
    """Return the same few bytes for the same question, however long it is and however written."""
    terms = sorted(
        (each.key, _SAME.get(each.operator, each.operator).value, sorted(each.values))
        for each in selector.requirements
    )
    text = repr((run.user, run.session, namespace, terms))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
