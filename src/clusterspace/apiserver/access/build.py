"""Everything about access for one hub, built in one place."""

from collections.abc import Mapping
from dataclasses import dataclass

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.escalation import EscalationCheck
from clusterspace.apiserver.access.guards import (
    AgentGuard,
    CreateRight,
    CredentialsRight,
    EscalationGuard,
    OwnerRight,
    TemplateRight,
)
from clusterspace.apiserver.access.parts import PartGuard
from clusterspace.apiserver.access.reviews import Reviews, ReviewVerb, VerbKey
from clusterspace.apiserver.access.snapshot import Snapshot
from clusterspace.apiserver.state import Plugin
from clusterspace.apiserver.store.interface import Store


@dataclass(frozen=True, slots=True)
class Access:
    """What a hub needs to say who may do what; call `snapshot.load()` before the first request."""

    snapshot: Snapshot
    authorizer: HubAuthorizer
    plugins: tuple[Plugin, ...]
    """To be asked before all others: who may not write learns nothing of what is there."""
    verbs: Mapping[VerbKey, ReviewVerb]
    """The questions clients ask, for the route table."""


def build_access(store: Store) -> Access:
    """Build the parts for the hub that lives on this store."""
    snapshot = Snapshot(store)
    authorizer = HubAuthorizer(snapshot)
    guards = (
        CreateRight(authorizer),
        AgentGuard(),
        CredentialsRight(authorizer),
        OwnerRight(authorizer),
        PartGuard(),
        EscalationGuard(EscalationCheck(authorizer, snapshot)),
        TemplateRight(authorizer),
    )
    return Access(snapshot, authorizer, guards, Reviews(authorizer).verbs())
