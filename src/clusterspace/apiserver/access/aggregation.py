"""Roles made of other roles: the rules of an aggregated ClusterRole follow those it selects."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.snapshot import RBAC_GROUP
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own
from clusterspace.errors import Conflict, MalformedSelector, StoreClosed, StoreError
from clusterspace.kube.objects import Object, find_at, identity_of, labels_of, name_of
from clusterspace.kube.selectors import LabelSelector, label_selector_of

_log = structlog.get_logger(__name__)

MANAGER: Final = "clusterrole-aggregation-controller"
RETRY_SECONDS: Final = 1.0


def gathered_rules(aggregate: Object, roles: Iterable[Object]) -> list[Any]:
    """Return the rules of every role the aggregate selects, by role name, each rule once."""
    selectors = _selectors(aggregate)
    gathered: dict[bytes, Any] = {}
    for role in sorted(roles, key=name_of):
        if name_of(role) == name_of(aggregate):
            continue
        if any(selector.matches(labels_of(role)) for selector in selectors):
            rules: list[Any] = role.get("rules") or []
            for rule in rules:
                gathered.setdefault(identity_of(rule), rule)
    return list(gathered.values())


def _selectors(aggregate: Object) -> list[LabelSelector]:
    listed = cast("list[Object]", find_at(aggregate, "aggregationRule", "clusterRoleSelectors"))
    try:
        return [label_selector_of(selector) for selector in listed or []]
    except MalformedSelector as error:
        _log.warning("role gathers nothing", role=name_of(aggregate), reason=str(error))
        return []


def is_aggregate(role: Object) -> bool:
    """Whether a role gathers its rules from others."""
    return bool(find_at(role, "aggregationRule", "clusterRoleSelectors"))


async def aggregate_all(hub: HubState) -> None:
    """Bring every aggregated role up to date, also those made of aggregated ones."""
    served = hub.catalog.get_storage(RBAC_GROUP, "clusterroles")
    changed = True
    while changed:
        changed = False
        roles = await _read_roles(hub, served)
        for role in filter(is_aggregate, roles):
            rules = gathered_rules(role, roles)
            if not _are_alike(rules, role.get("rules") or []):
                await _write_rules(hub, served, name_of(role), rules)
                changed = True


def _are_alike(rules: list[Any], held: list[Any]) -> bool:
    """Whether both have the same rules, in whatever order.

    Two aggregates that select each other would otherwise reorder their rules for ever.
    """
    return len(rules) == len(held) and all(rule in held for rule in rules)


async def _read_roles(hub: HubState, served: Served) -> list[Object]:
    page = await hub.store.range(served.prefix())
    return [forms.decode_stored(entry, served.form) for entry in page.items]


async def _write_rules(hub: HubState, served: Served, name: str, rules: list[Any]) -> None:
    write = write_of(hub, served, manager=MANAGER)
    await edit_own(hub, served, served.key("", name), partial(_with_rules, rules), write=write)


def _with_rules(rules: list[Any], role: Object) -> Object:
    return {**role, "rules": rules} if is_aggregate(role) else role


class RoleAggregator:
    """Follows ClusterRoles and keeps the aggregated ones current."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("roles are gathered again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        store = self._hub.store
        prefix = self._hub.catalog.get_storage(RBAC_GROUP, "clusterroles").prefix()
        watch = store.watch(prefix, after=store.current_revision)
        try:
            await aggregate_all(self._hub)
            async for _events in watch:
                await aggregate_all(self._hub)
        finally:
            watch.close()
