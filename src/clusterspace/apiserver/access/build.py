"""Everything about access for one hub, built in one place."""

from collections.abc import Mapping
from dataclasses import dataclass

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.escalation import EscalationCheck
from clusterspace.apiserver.access.grants import RoleCache
from clusterspace.apiserver.access.guards import (
    AgentGuard,
    ComponentGuard,
    CreateRight,
    CredentialsRight,
    EscalationGuard,
    OwnerRight,
    TemplateRight,
)
from clusterspace.apiserver.access.reviews import Reviews, ReviewVerb, VerbKey
from clusterspace.apiserver.state import Plugin
from clusterspace.apiserver.store.interface import Store


@dataclass(frozen=True, slots=True)
class Access:
    """What a hub needs to say who may do what; `role_cache.load()` comes before any request."""

    role_cache: RoleCache
    authorizer: HubAuthorizer
    plugins: tuple[Plugin, ...]
    """To be asked before all others: who may not write learns nothing of what is there."""
    verbs: Mapping[VerbKey, ReviewVerb]
    """The questions clients ask, for the route table."""


def build_access(store: Store) -> Access:
    """Build the parts for the hub that lives on this store."""
    role_cache = RoleCache(store)
    authorizer = HubAuthorizer(role_cache)
    guards = (
        CreateRight(authorizer),
        AgentGuard(),
        CredentialsRight(authorizer),
        OwnerRight(authorizer),
        ComponentGuard(),
        EscalationGuard(EscalationCheck(authorizer, role_cache)),
        TemplateRight(authorizer),
    )
    return Access(role_cache, authorizer, guards, Reviews(authorizer).verbs())
