"""The plug-ins that stand between an authorized write and the store.

A request is authorized by its URL. What its body grants, names or makes is only known here.
"""

from clusterspace.errors import Forbidden
from clusterspace.hub.access.agents import scope_of
from clusterspace.hub.access.authorizer import HubAuthorizer
from clusterspace.hub.access.escalation import EscalationCheck
from clusterspace.hub.admissions import Admission
from clusterspace.hub.state import HubState
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.serving.request_info import RequestInfo


class CreateRight:
    """A patch or update that makes a new object needs the right to create it."""

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let changes pass; ask who makes something new whether they may."""
        if admission.is_create:
            self._authorizer.require(admission.user, _creation_of(admission))
        return admission.new


def _creation_of(admission: Admission) -> RequestInfo:
    info = admission.served.info
    return RequestInfo(
        method="",
        path="",
        verb="create",
        is_resource=True,
        group=info.group,
        version=info.version,
        resource=info.plural,
        namespace=namespace_of(admission.new) if info.namespaced else "",
        name=name_of(admission.new),
    )


class EscalationGuard:
    """Refuses roles and bindings that grant more than their author holds."""

    def __init__(self, check: EscalationCheck) -> None:
        self._check = check

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        self._check.check(admission.user, admission.served.info, admission.new, admission.old)
        return admission.new


class AgentGuard:
    """Refuses what an agent writes about anybody but itself."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        scope = scope_of(admission.user)
        if scope is not None:
            info = admission.served.info
            why = scope.refusal_of(info, admission.new, admission.old)
            if why:
                raise _refused(admission, why)
        return admission.new


def _refused(admission: Admission, why: str) -> Forbidden:
    return statuses.forbidden(admission.served.info.group_resource, name_of(admission.new), why)
