"""Lease freshness to the Ready condition: a Pull cluster that falls silent is Unknown.

Nobody's clock is trusted but the hub's own steady one: a cluster is as fresh as the moment we saw
its lease or its status change. When most of the fleet falls silent at once it is not them, it is
us: then nothing is written, so nothing is tainted, and it is said loudly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import conditions_of, is_pull
from clusterspace.client.resources import Client
from clusterspace.controllers.caches import Cache
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.health import READY, silent_condition
from clusterspace.fleet.membership.status import ready_status, tell_transition
from clusterspace.kube.conditions import UNKNOWN, find_condition, set_condition
from clusterspace.kube.objects import Object, name_of, resource_version_of, uid_of, with_value
from clusterspace.telemetry import fleet_metrics

_log = structlog.get_logger(__name__)

_FEW: Final = 2
"""One silent cluster is never a reason to doubt ourselves, however small the fleet."""


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How often to look, and how long a cluster may be silent."""

    period_seconds: float = 5.0
    grace_seconds: float = 40.0
    startup_grace_seconds: float = 60.0
    """For a cluster that has never reported."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of all Clusters, and of the leases their agents renew."""

    clusters: Cache
    leases: Cache


@dataclass(frozen=True, slots=True)
class Sign:
    """What changes while a cluster is alive."""

    cluster_uid: str
    lease_version: str
    ready: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sign of life, and when we first saw it by our own clock."""

    sign: Sign
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which clusters have fallen silent; none are named when the hub suspects itself."""

    silent: tuple[str, ...] = ()
    suspects_itself: bool = False


def judge(silences: Mapping[str, float], fleet_size: int, settings: MonitorSettings) -> Verdict:
    """Return who fell silent, given for how long each was quiet that was heard before.

    Heartbeats come at different moments, so when the first of many has been silent for too long
    the others are close: half the time counts as quiet.
    """
    quiet = [each for each in silences.values() if each >= settings.grace_seconds / 2]
    if len(quiet) >= _FEW and 2 * len(quiet) > fleet_size:
        return Verdict(suspects_itself=True)
    silent = [name for name, each in silences.items() if each >= settings.grace_seconds]
    return Verdict(tuple(sorted(silent)))


def sign_of(cluster: Object, lease: Object | None) -> Sign:
    """Return the sign of life a cluster gives now."""
    ready = find_condition(conditions_of(cluster), READY) or {}
    said = f"{ready.get('status')} {ready.get('lastTransitionTime')}"
    return Sign(uid_of(cluster), resource_version_of(lease or {}), said)


class Monitor:
    """Looks at every Pull cluster again and again."""

    def __init__(
        self,
        hub: Client,
        watched: Watched,
        events: EventRecorder,
        *,
        clock: Clock,
        settings: MonitorSettings | None = None,
    ) -> None:
        self._hub = hub
        self._clusters = watched.clusters
        self._leases = watched.leases
        self._events = events
        self._clock = clock
        self._settings = settings or MonitorSettings()
        self._sightings: dict[str, Sighting] = {}
        self.suspects_itself = False

    async def run(self) -> None:
        """Look until cancelled; those known at the start get their whole grace from now on."""
        while True:
            await self.look()
            await self._clock.sleep(self._settings.period_seconds)

    async def look(self) -> Verdict:
        """Look once: mark who fell silent, or suspect ourselves."""
        clusters = [each for each in self._clusters.objects() if not is_being_deleted(each)]
        heard = [each for each in clusters if ready_status(each) != UNKNOWN]
        pulled = {name_of(each): each for each in heard if is_pull(each)}
        self._note_signs(each for each in clusters if is_pull(each))
        verdict = judge(self._silences(pulled.values()), len(heard), self._settings)
        self._suspect(verdict.suspects_itself, clusters)
        for name in verdict.silent:
            await self._mark(pulled[name])
        return verdict

    def _note_signs(self, clusters: Iterable[Object]) -> None:
        now = self._clock.monotonic()
        sightings: dict[str, Sighting] = {}
        for cluster in clusters:
            name = name_of(cluster)
            sign = sign_of(cluster, self._leases.find(names.lease_place(name).key))
            held = self._sightings.get(name)
            sightings[name] = held if held and held.sign == sign else Sighting(sign, now)
        self._sightings = sightings

    def _silences(self, clusters: Iterable[Object]) -> dict[str, float]:
        """Return for how long each has been silent; who never reported is given more time."""
        now, settings = self._clock.monotonic(), self._settings
        more = settings.startup_grace_seconds - settings.grace_seconds
        return {
            name_of(each): now
            - self._sightings[name_of(each)].at
            - (0.0 if ready_status(each) else more)
            for each in clusters
        }

    def _suspect(self, suspects: bool, clusters: list[Object]) -> None:
        if suspects == self.suspects_itself:
            return
        self.suspects_itself = suspects
        fleet_metrics.hub_doubts(itself=suspects)
        if suspects:
            _log.error("most of the fleet fell silent at once: the hub suspects itself")
        else:
            _log.warning("the fleet is heard again", clusters=len(clusters))
            # Some are heard later than others: all begin anew.
            now = self._clock.monotonic()
            self._sightings = {
                name: Sighting(held.sign, now) for name, held in self._sightings.items()
            }
        for each in clusters if suspects else ():
            message = "most of the fleet fell silent at once: the hub suspects itself, not clusters"
            self._events.record(each, "HubSuspectsItself", message, is_warning=True)

    async def _mark(self, cluster: Object) -> None:
        condition = silent_condition(was_heard=bool(ready_status(cluster)))
        conditions = set_condition(conditions_of(cluster), condition, self._clock.now())
        marked = with_value(cluster, conditions.conditions, "status", "conditions")
        place = names.cluster_place(name_of(cluster))
        try:
            after = await commit(self._hub, place, cluster, marked)
        except (ApiError, ClusterError) as error:
            # Somebody was faster, or the hub is not there: the next look will see.
            _log.warning("not marked", cluster=name_of(cluster), reason=str(error))
        else:
            tell_transition(self._events, cluster, after)
