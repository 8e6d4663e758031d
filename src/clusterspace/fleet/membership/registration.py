"""The registration on the member, looked after by the agent: certificates renewed, its end seen.

Somebody may register the cluster anew, and somebody may take the registration away. The agent
looks again and again: it takes over a new certificate, and ends when there is nothing.
"""

from typing import Final

import structlog

from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.commit import commit
from clusterspace.errors import ApiError, CannotJoin, ClusterError, UnusableKubeconfig
from clusterspace.fleet.membership.agent_credentials import (
    AgentCredentials,
    is_renewal_due,
    obtain_certificate,
)
from clusterspace.fleet.membership.agent_manifests import (
    REGISTRATION_PLACE,
    Registration,
    read_registration,
    registration_data,
)
from clusterspace.kube.objects import Object

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0


class RegistrationKeeper:
    """Keeps the agent's credentials current, for as long as it is registered."""

    def __init__(
        self,
        member: Client,
        hub: ClusterClient,
        credentials: AgentCredentials,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._member = member
        self._hub = hub
        self._credentials = credentials
        self._clock = hub.connection.clock
        self._random = hub.connection.random
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Look again and again; return when the registration is gone."""
        while True:
            await self._clock.sleep(self._look_seconds)
            try:
                if not await self.look():
                    return
            except (ApiError, ClusterError, CannotJoin, UnusableKubeconfig) as error:
                # What we have works until it expires: the next look may go better.
                _log.warning("registration not looked after", reason=str(error))

    async def look(self) -> bool:
        """Look once: take over what is new, renew what is half over; False when all is gone."""
        secret = await self._member.find(REGISTRATION_PLACE)
        if secret is None:
            return False
        registration = read_registration(secret)
        self._credentials.held = registration.held
        if is_renewal_due(registration.held.certificate, self._clock.now()):
            await self._renew(secret, registration)
        return True

    async def _renew(self, secret: Object, registration: Registration) -> None:
        name = registration.cluster_name
        held = await obtain_certificate(self._hub, name, clock=self._clock, random=self._random)
        data = registration_data(name, registration.hub.server, registration.authority, held)
        await commit(self._member, REGISTRATION_PLACE, secret, {**secret, "data": data})
        self._credentials.held = held
        _log.info("certificate renewed", cluster=name)
