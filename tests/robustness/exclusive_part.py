"""A part of a fleet that fails over: `python -m tests.robustness.exclusive_part PART PATH`.

`controllers` takes the directory of a hub, `agent` the kubeconfig of its member. It differs from
the product in timings, in a clock whose time of day jumps when a file beside PATH says so, and in
the bug that is planted in it, if one is.
"""

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.controllers.leases import LeaseTimings
from clusterspace.errors import LeadershipLost
from clusterspace.fleet.execution.exclusive import ExclusiveCopies
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import RenewalSettings
from clusterspace.fleet.propagation.eviction import controller as eviction
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.fleet.propagation.works.exclusive import StopProofs
from clusterspace.kube.objects import Object
from clusterspace.roots.agent import run_agent
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.processes import stop_event
from clusterspace.roots.settings import AgentSettings
from clusterspace.testing.hubs import part_of_hub
from clusterspace.testing.stage import SOON_UNKNOWN, quick

BUG = "CLUSTERSPACE_PLANTED_BUG"
NO_LEASE, NO_QUORUM, STALE_WORK = "no lease", "no quorum", "stale work"
LEASE_SECONDS = 3.0
QUIET_SECONDS = 4.0
MARGIN_SECONDS = 10.0
"""For a busy machine, and for an agent that has to be started, or takes another's place."""
LEADERSHIP = LeaseTimings(lease_seconds=6.0, renew_seconds=4.5, retry_seconds=0.5)
EVICTIONS = EvictionSettings(
    is_on=True,
    each_second=100,
    grace_seconds=3,
    settle_seconds=0.5,
    quiet_seconds=QUIET_SECONDS,
    margin_seconds=MARGIN_SECONDS,
)


class JumpingClock(SystemClock):
    """The machine's clock, with a time of day that somebody sets."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset

    def now(self) -> float:
        with suppress(OSError, ValueError):
            return super().now() + float(self._offset.read_text())
        return super().now()


def plant(bug: str) -> None:
    """Break what a bug of this name would break."""

    async def never(self: ExclusiveCopies) -> None:
        await asyncio.Event().wait()

    async def always(self: ExclusiveCopies, work: Object) -> bool:
        return True

    def trusted(self: StopProofs) -> str:
        return ""

    if bug == NO_LEASE:
        ExclusiveCopies.run = never
    elif bug == NO_QUORUM:
        StopProofs._why_not_trusted = trusted
        eviction.look_dead = lambda _clusters: ""
    elif bug == STALE_WORK:
        ExclusiveCopies.admits = always


async def work(part: str, path: Path) -> None:
    """Work as this part, and go on when the lease was lost, as whoever runs it would see to."""
    clock = JumpingClock(path.parent / "clock")
    while True:
        with suppress(LeadershipLost):
            if part == "controllers":
                settings = quick(part_of_hub(path, "controllers"))
                quickly = replace(
                    settings, lease=LEADERSHIP, evictions=EVICTIONS, monitor=SOON_UNKNOWN
                )
                await run_controllers(quickly, clock)
            else:
                agent = AgentSettings(
                    read_kubeconfig([path]).settings(cluster="member"),
                    status_seconds=0.5,
                    thresholds=Thresholds(success_seconds=0.4, failure_seconds=0.4),
                    lease=RenewalSettings(renew_seconds=0.4, retry_seconds=0.3, answer_seconds=2.0),
                    registration_seconds=5.0,
                    leadership=LEADERSHIP,
                    exclusive_seconds=LEASE_SECONDS,
                    allows_view=False,
                )
                await run_agent(agent, clock)


async def main() -> None:
    plant(os.environ.get(BUG, ""))
    stopped = stop_event()
    task = asyncio.create_task(work(sys.argv[1], Path(sys.argv[2])))
    task.add_done_callback(lambda _: stopped.set())
    await stopped.wait()
    task.cancel()
    await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(main())
