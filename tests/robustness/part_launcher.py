"""A part of a fleet with short leases: `python -m tests.robustness.part_launcher PART PATH`.

`controllers` takes the directory of a hub, `agent` the kubeconfig of its member. It differs from
the product in timings alone, so that a frozen leader is replaced within seconds.
"""

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.controllers.leases import LeaseTimings
from clusterspace.errors import LeadershipLost
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import RenewalSettings
from clusterspace.roots.agent import run_agent
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.processes import stop_event
from clusterspace.roots.settings import AgentSettings
from clusterspace.testing.hubs import part_of_hub
from clusterspace.testing.stage import quick

LEASE = LeaseTimings(lease_seconds=8.0, renew_seconds=6.0, retry_seconds=0.5)
"""Long enough for a busy machine: who starts to lead lists everything, and must renew meanwhile."""


async def work(part: str, path: Path) -> None:
    """Work as this part, and go on when the lease was lost, as whoever runs it would see to."""
    while True:
        with suppress(LeadershipLost):
            if part == "controllers":
                settings = replace(quick(part_of_hub(path, "controllers")), lease=LEASE)
                await run_controllers(settings, SystemClock())
            else:
                member = read_kubeconfig([path]).settings(cluster="member")
                agent = AgentSettings(
                    member,
                    status_seconds=0.5,
                    thresholds=Thresholds(success_seconds=0.4, failure_seconds=0.4),
                    lease=RenewalSettings(renew_seconds=0.3, retry_seconds=0.3),
                    registration_seconds=5.0,
                    leadership=LEASE,
                )
                await run_agent(agent, SystemClock())


async def main() -> None:
    stopped = stop_event()
    task = asyncio.create_task(work(sys.argv[1], Path(sys.argv[2])))
    task.add_done_callback(lambda _: stopped.set())
    await stopped.wait()
    task.cancel()
    await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(main())
