"""Who owns which fields after a write: the hub's side of `kube.managed_fields`."""

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import HubState
from clusterspace.kube.managed_fields.update import Write

_STATUS_DOOR = frozenset({"spec", "metadata.deletionTimestamp", "metadata.finalizers"})


def write_of(hub: HubState, served: Served, *, manager: str, subresource: str = "") -> Write:
    """Describe a write to an object of this resource."""
    return Write(
        manager=manager,
        api_version=served.info.api_version,
        now=hub.timestamp(),
        schema=served.rules.schema,
        subresource=subresource,
        reset=_reset(served, subresource),
        blank=served.rules.blank,
    )


def _reset(served: Served, subresource: str) -> frozenset[str]:
    """Name what this door does not change."""
    if subresource == "status":
        return _STATUS_DOOR
    has_status = served.info.find_subresource("status") is not None
    return frozenset({"status"}) if has_status else frozenset()
