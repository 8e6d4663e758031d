"""Certificate requests that are settled, or that nobody settled, go away."""

from typing import Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import HubState
from clusterspace.errors import RevisionMismatch
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.timestamps import parse_time

LOOK_SECONDS: Final = 60.0

SETTLED_SECONDS: Final = 3600.0
"""How long a request is kept that was approved, denied or has failed; as Kubernetes."""

PENDING_SECONDS: Final = 24 * 3600.0


async def expire_requests(hub: HubState) -> None:
    """Look at every request now and then, until cancelled."""
    while True:
        await forget_old_requests(hub)
        await hub.clock.sleep(LOOK_SECONDS)


async def forget_old_requests(hub: HubState) -> int:
    """Remove the requests that are past their time; return how many went."""
    served = hub.catalog.get_storage("certificates.k8s.io", "certificatesigningrequests")
    page = await hub.store.range(served.prefix())
    forgotten = 0
    for entry in page.items:
        if not is_past(forms.decode_stored(entry, served.form), hub.clock.now()):
            continue
        try:
            await hub.store.delete(entry.key, expected=entry.mod_revision)
        except RevisionMismatch:
            continue  # somebody has just looked at it
        forgotten += 1
    return forgotten


def is_past(request: Object, now: float) -> bool:
    """Whether a request has been there long enough."""
    created = str(find_at(request, "metadata", "creationTimestamp"))
    conditions = cast("list[Object]", find_at(request, "status", "conditions") or [])
    times = [str(each["lastUpdateTime"]) for each in conditions if each.get("lastUpdateTime")]
    if not times:
        return parse_time(created) + PENDING_SECONDS <= now
    return max(parse_time(each) for each in times) + SETTLED_SECONDS <= now
