"""Admission of FederatedHPAs and CronFederatedHPAs: completed as Kubernetes completes its own."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusterspace.apis.autoscalers import (
    CRON_FEDERATED_HPA,
    FEDERATED_HPA,
    GROUP,
    completed_federated_hpa,
    cron_causes,
    federated_hpa_causes,
)
from clusterspace.apiserver.admission.propagation import shape_causes
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.errors import Cause
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, is_being_deleted, name_of

_CAUSES: Final[Mapping[str, Callable[[Object], Iterable[Cause]]]] = {
    FEDERATED_HPA: federated_hpa_causes,
    CRON_FEDERATED_HPA: cron_causes,
}


class AutoscalerRules(Plugin):
    """Completes and checks autoscalers of both kinds; one that is on its way out is let go."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Complete and check an autoscaler; other objects pass."""
        info, new = admission.served.info, admission.new
        causes_of = _CAUSES.get(info.kind) if info.group == GROUP else None
        if causes_of is None or admission.subresource or is_being_deleted(admission.old or {}):
            return new

        def checked() -> Object:
            if misshapen := shape_causes(admission):
                raise statuses.invalid(info.group_kind, name_of(new), misshapen)
            completed = completed_federated_hpa(new) if info.kind == FEDERATED_HPA else new
            found = list(causes_of(completed))
            if found:
                raise statuses.invalid(info.group_kind, name_of(new), found)
            return completed

        return await admission.run(checked)
