"""The order in which the hub's plug-ins are asked."""

from dataclasses import replace

from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube.objects import Object


async def admit(hub: HubState, admission: Admission) -> Object:
    """Ask every plug-in in turn; each sees what the one before it returned."""
    for plugin in hub.plugins:
        changed = await plugin.admit(hub, admission)
        if changed is not admission.new:
            admission = replace(admission, new=changed)
    return admission.new
