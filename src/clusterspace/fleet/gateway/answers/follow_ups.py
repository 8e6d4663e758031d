"""From an object to its pods: the second request of a command, kept in the cluster of the first."""

from dataclasses import replace
from typing import Final

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.flow import HUB, Naming, Reach, Reply
from clusterspace.fleet.gateway.sessions import run_of, selector_in
from clusterspace.kube.selectors import parse_label_selector

_NARROWING: Final = ("fieldSelector", "continue", "limit")
"""What nobody says who only goes on to the pods of an object."""


def note_found(asking: Asking, reply: Reply) -> None:
    """Remember where a command has found an object that has pods.

    The hub's own objects are templates, and their pods are wherever they were propagated to.
    """
    info, run = asking.route.info, run_of(asking.context)
    is_found = reply.failure is None and reply.cluster != HUB
    if run is None or not is_found or info.verb != "get" or info.subresource:
        return
    selector = selector_in(info.group, info.resource, reply.body)
    if selector is not None:
        asking.fleet.sessions.note(run, info.namespace, selector, reply.cluster)


def kept_in_place(asking: Asking) -> Asking:
    """Return a request for pods as one to the cluster its command is at, where that is known."""
    info = asking.route.info
    if asking.route.reach is not Reach.EVERY or not _may_go_on(info):
        return asking
    run = run_of(asking.context)
    try:
        selector = parse_label_selector(info.query.get("labelSelector"))
    except MalformedSelector:
        return asking  # for the clusters to refuse
    cluster = asking.fleet.sessions.find(run, info.namespace, selector) if run else None
    if cluster is None:
        return asking
    naming = Naming(cluster, qualifies_names=True)
    return replace(asking, route=replace(asking.route, reach=Reach.ONE, naming=naming))


def _may_go_on(info: RequestInfo) -> bool:
    """Whether a request may be the second one of a command: pods of a namespace, by labels only."""
    is_pods = (info.group, info.resource, info.subresource) == ("", "pods", "")
    is_read = info.verb in ("list", "watch") and not info.name
    is_plain = not any(info.query.get(key) for key in _NARROWING)
    return is_pods and is_read and is_plain and bool(info.namespace)
