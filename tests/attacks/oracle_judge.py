"""Requests made of the servers, and what the model finds wrong with what became of them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.attacks import oracle
from tests.attacks.oracle import HUB, Aim, Reading, Unreadable, Who
from tests.attacks.oracle_site import Case, Heard, Server, Shown, Site, ask, ask_by_wire
from tests.attacks.oracle_world import USERS

GATEWAY_PAUSE = 0.004
"""An answer that crosses a socket takes a few milliseconds from one word to the next."""

_QUALIFIED = re.compile(rb"\.clusterspace\.[a-z0-9]+")
_REVIEWS = ("tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews")


@dataclass
class Verdict:
    """What a run of cases came to."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter[int])
    let_in: int = 0
    changed: int = 0
    shown: int = 0
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.let_in} let in, {self.changed} changed something, "
            f"{self.shown} showed something, {len(self.problems)} that were not authorized; "
            f"codes {dict(sorted(self.codes.items()))}"
        )


async def try_hub(
    site: Site, cases: Iterable[Case], *, most_problems: int = 10, by_wire: bool = False
) -> Verdict:
    """Make requests of the hub, one after the other, and judge each."""
    verdict = Verdict()
    for case in cases:
        site.forget()
        shown = await (ask_by_wire(site.hub, case) if by_wire else ask(site.hub.handler, case))
        _note(site, verdict, shown)
        problems = [f"{case} -> {shown.status}: {why}" for why in _judge_hub(site, case, shown)]
        verdict.problems += problems
        await site.undo()
        if len(verdict.problems) >= most_problems:
            break
    return verdict


async def try_gateway(site: Site, cases: Iterable[Case], *, most_problems: int = 10) -> Verdict:
    """Make requests of the gateway, one after the other, and judge each."""
    verdict = Verdict()
    for case in cases:
        site.forget()
        shown = await ask(site.gateway, case, pause=GATEWAY_PAUSE)
        _note(site, verdict, shown)
        problems = [f"{case} -> {shown.status}: {why}" for why in _judge_gateway(site, case, shown)]
        verdict.problems += problems
        await site.undo()
        if len(verdict.problems) >= most_problems:
            break
    return verdict


def _note(site: Site, verdict: Verdict, shown: Shown) -> None:
    servers = site.servers.values()
    verdict.cases += 1
    verdict.codes[shown.status] += 1
    verdict.let_in += shown.status < 400
    verdict.changed += any(server.events for server in servers)
    verdict.shown += any(server.canaries_in(shown.body) for server in servers)


def _judge_hub(site: Site, case: Case, shown: Shown) -> Iterator[str]:
    hub, model = site.hub, site.hub.model
    who = oracle.act_as(case.headers, USERS[case.user], model.roles)
    reading = _read(case)
    heard = [each for each in hub.witness.heard if each.target == case.target]
    if who is None or reading is None:
        yield from _nothing_happened(site, shown, f"{who} may not ask {reading}")
        if heard:
            yield "it was let in"
        return
    is_proxied = _is_proxied(reading)
    asked = reading
    if is_proxied:
        asked = replace(reading, verb=_inner_verb(case, reading))
    may = model.lets_in(who, asked)
    if heard and not may:
        yield "it was let in, although no rule allows it"
    if not heard and may and shown.status in (401, 403) and who.agent_of is None:
        yield "it was kept out, although a rule allows it"
    inner = _inner_of(case, reading) if is_proxied and may else None
    for server in site.servers.values():
        if server is hub:
            yield from _of_server(server, who, (asked,), case.body, shown)
        elif inner is None or server.name != reading.place.name:
            yield from _untouched(server, shown)
        else:
            yield from _of_server(server, who, (inner,), case.body, shown)


def _judge_gateway(site: Site, case: Case, shown: Shown) -> Iterator[str]:
    who = oracle.act_as(case.headers, USERS[case.user], site.hub.model.roles)
    try:
        aim = oracle.aim(case.method, case.target, case.body)
    except Unreadable:
        aim = None
    if who is None or aim is None or who.agent_of is not None:
        yield from _nothing_happened(site, shown, f"{who} aims at {aim}")
        return
    yield from _audited(site, aim.said)
    # To a request that reaches many an upgrade means nothing: it is answered with a list.
    is_upgrade = case.is_upgrade and aim.cluster is not None
    body = _QUALIFIED.sub(b"", case.body)
    for server in site.servers.values():
        is_aimed_at = aim.cluster in (None, server.name)
        is_reached = is_aimed_at and site.model.reaches(
            who, server.name, aim.reading, is_upgrade=is_upgrade
        )
        if not is_reached:
            yield from _untouched(server, shown)
            yield from _unasked(server)
            continue
        yield from _of_server(server, who, _asked_for(aim), body, shown)
        yield from _as_aimed(server, who, aim)


def _asked_for(aim: Aim) -> tuple[Reading, ...]:
    """Return what the gateway asks clusters for a request; it makes a watch of a list and a watch.

    Each of the two is for the cluster to allow, so who may list is shown what there is.
    """
    is_made_of_two = aim.cluster is None and aim.reading.verb == "watch"
    return (aim.reading, replace(aim.reading, verb="list")) if is_made_of_two else (aim.reading,)


def _audited(site: Site, said: Reading) -> Iterator[str]:
    """Yield lines of the audit log that tell of something else than what was asked."""
    place = said.place
    asked = (said.verb, place.group, place.resource, said.subresource, place.namespace, place.name)
    for line in site.audited:
        if line.get("count"):
            continue  # failed logins, some of earlier requests, told together after a while
        told = tuple(
            line.get(key, "")
            for key in ("verb", "group", "resource", "subresource", "namespace", "name")
        )
        if said.is_resource and told != asked and (*told[:5], "") != asked:
            yield f"it was audited as {line}"


def _read(case: Case) -> Reading | None:
    try:
        return oracle.read(case.method, case.target)
    except Unreadable:
        return None


def _is_proxied(reading: Reading) -> bool:
    place = reading.place
    is_cluster = (place.group, place.resource) == (oracle.CLUSTERS, "clusters")
    return is_cluster and reading.subresource == "proxy" and not reading.is_watch_path


def _inner_of(case: Case, reading: Reading) -> Reading | None:
    path, mark, query = case.target.partition("?")
    _, _, inside = path.partition(f"/{reading.place.name}/proxy")
    try:
        return oracle.read(case.method, (inside or "/") + mark + query)
    except Unreadable:
        return None


def _inner_verb(case: Case, reading: Reading) -> str:
    inner = _inner_of(case, reading)
    return oracle.reach_verb(inner, is_upgrade=case.is_upgrade) if inner else reading.verb


def _of_server(
    server: Server, who: Who, asked: tuple[Reading, ...], body: bytes, shown: Shown
) -> Iterator[str]:
    """Yield what a request did to a server that it may not have done."""
    model = server.model
    for change in server.changes():
        if not any(model.excuses(who, each, body, change) for each in asked):
            yield f"it changed {server.name}: {change.place}"
    for place in server.canaries_in(shown.body):
        if not any(model.shows(who, each, place) for each in asked):
            yield f"it was shown {place} of {server.name}"


def _untouched(server: Server, shown: Shown) -> Iterator[str]:
    for change in server.changes():
        yield f"it changed {server.name}: {change.place}"
    for place in server.canaries_in(shown.body):
        yield f"it was shown {place} of {server.name}"


def _nothing_happened(site: Site, shown: Shown, why: str) -> Iterator[str]:
    for server in site.servers.values():
        for each in _untouched(server, shown):
            yield f"{each} ({why})"


def _of_callers(server: Server) -> list[Heard]:
    """Return what a server was asked in the name of somebody, not on the gateway's own account."""
    own = "root" if server.name == HUB else "system:serviceaccount:karmada-cluster:"
    return [each for each in server.witness.heard if not (own in each.user and _is_own(each))]


def _is_own(heard: Heard) -> bool:
    """Whether the gateway asks such things by itself: who somebody is, what a cluster serves."""
    reading = oracle.read(heard.method, heard.target)
    if not reading.is_resource or reading.place.resource in _REVIEWS:
        return True
    is_followed = (
        reading.place.resource == "clusters" or reading.place.namespace == "karmada-cluster"
    )
    return is_followed and reading.verb in ("list", "watch")


def _unasked(server: Server) -> Iterator[str]:
    for heard in _of_callers(server):
        asked = oracle.read(heard.method, heard.target)
        if asked.is_resource and asked.place.resource not in _REVIEWS:
            yield f"{server.name} was asked {heard}, by somebody who may not reach it"


def _as_aimed(server: Server, who: Who, aim: Aim) -> Iterator[str]:
    """Yield what a server was asked that is not what was aimed, or not by who aimed it."""
    for heard in _of_callers(server):
        asked = oracle.read(heard.method, heard.target)
        is_review = asked.place.resource in _REVIEWS
        if heard.user != who.name or set(heard.groups) != set(who.groups):
            yield f"{server.name} was asked {heard}, which is not {who}"
        elif asked.is_resource and not is_review and asked.place != aim.reading.place:
            yield f"{server.name} was asked {heard}, which is not {aim.reading.place}"
