"""Roles made of other roles: the rules of an aggregated ClusterRole follow those it selects."""

from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.rbac import RBAC_GROUP
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own, write_of
from clusterspace.errors import Conflict, MalformedSelector, StoreClosed, StoreError
from clusterspace.kube.objects import Object, find_at, identity_of, labels_of, name_of
from clusterspace.kube.selectors import label_selector_of

_log = structlog.get_logger(__name__)

MANAGER: Final = "clusterrole-aggregation-controller"
RETRY_SECONDS: Final = 1.0


def gathered_rules(aggregate: Object, roles: Iterable[Object]) -> list[Any]:
    """Return the rules of every role the aggregate selects, by role name, each rule once."""
    listed = cast("list[Object]", find_at(aggregate, "aggregationRule", "clusterRoleSelectors"))
    try:
        selectors = [label_selector_of(selector) for selector in listed or []]
    except MalformedSelector as error:
        _log.warning("role gathers nothing", role=name_of(aggregate), reason=str(error))
        return []
    gathered: dict[bytes, Any] = {}
    for role in sorted(roles, key=name_of):
        if name_of(role) == name_of(aggregate):
            continue
        if any(selector.matches(labels_of(role)) for selector in selectors):
            rules: list[Any] = role.get("rules") or []
            for rule in rules:
                gathered.setdefault(identity_of(rule), rule)
    return list(gathered.values())


def is_aggregate(role: Object) -> bool:
    """Whether a role gathers its rules from others."""
    return bool(find_at(role, "aggregationRule", "clusterRoleSelectors"))


async def aggregate_all(hub: HubState) -> None:
    """Bring every aggregated role up to date, also those made of aggregated ones."""
    served = hub.catalog.get_storage(RBAC_GROUP, "clusterroles")
    changed = True
    while changed:
        changed = False
        page = await hub.store.range(served.prefix())
        roles = [forms.decode_stored(entry, served.form) for entry in page.items]
        for role in filter(is_aggregate, roles):
            rules = gathered_rules(role, roles)
            current: list[Any] = role.get("rules") or []
            # Compared in whatever order: two aggregates that select each other would otherwise
            # reorder their rules for ever.
            if len(rules) == len(current) and all(rule in current for rule in rules):
                continue

            def with_rules(live: Object, rules: list[Any] = rules) -> Object:
                # Somebody may have made it a role of its own since it was read.
                return {**live, "rules": rules} if is_aggregate(live) else live

            key, write = served.key("", name_of(role)), write_of(hub, served, manager=MANAGER)
            await edit_own(hub, served, key, with_rules, write=write)
            changed = True


class RoleAggregator:
    """Follows ClusterRoles and keeps the aggregated ones current."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Work until cancelled."""
        store = self._hub.store
        prefix = self._hub.catalog.get_storage(RBAC_GROUP, "clusterroles").prefix()
        while True:
            try:
                # Watched before it is read: what changes during the first pass brings a second
                # one. Our own writes come back as events too, and find nothing left to do.
                with closing(store.watch(prefix, after=store.current_revision)) as watch:
                    await aggregate_all(self._hub)
                    async for _events in watch:
                        await aggregate_all(self._hub)
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("roles are gathered again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)
