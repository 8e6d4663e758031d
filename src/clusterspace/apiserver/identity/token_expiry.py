"""Bootstrap tokens past their time go away."""

from typing import Final

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.bootstrap_tokens import NAMESPACE, TYPE, has_expired
from clusterspace.apiserver.state import HubState
from clusterspace.errors import RevisionMismatch

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 30.0
"""An expired token is refused at once; its Secret need not vanish to the second."""


async def expire_tokens(hub: HubState) -> None:
    """Look at every bootstrap token now and then, until cancelled."""
    while True:
        await forget_expired_tokens(hub)
        await hub.clock.sleep(LOOK_SECONDS)


async def forget_expired_tokens(hub: HubState) -> int:
    """Remove the tokens that have expired; return how many went."""
    served = hub.catalog.get_storage("", "secrets")
    page = await hub.store.range(served.prefix(NAMESPACE))
    forgotten = 0
    for entry in page.items:
        secret = forms.decode_stored(entry, served.form)
        if secret.get("type") != TYPE or not has_expired(secret, hub.clock.now()):
            continue
        try:
            await hub.store.delete(entry.key, expected=entry.mod_revision)
        except RevisionMismatch:
            continue  # somebody has just given it more time
        _log.info("expired bootstrap token removed", secret=entry.key)
        forgotten += 1
    return forgotten
