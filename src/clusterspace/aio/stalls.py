"""How long the event loop was kept from its turns, by this process and not by its neighbours.

Everybody who asks a server something waits while its loop does not turn. A timer that rings late
tells so; on a crowded machine it is late because others were given the processor, which nothing in
this process could help. So the time that counts is the part of the delay in which we were running.
"""

import time
from collections.abc import Callable
from typing import Final

from clusterspace.aio.clocks import Clock

PERIOD_SECONDS: Final = 0.025
"""How often the loop is looked at; a stall is known to within this."""


async def measure_stalls(clock: Clock, tell: Callable[[float], None]) -> None:
    """Tell after each period how many seconds of its delay this process was running; for ever."""
    while True:
        began, used = clock.monotonic(), time.process_time()
        await clock.sleep(PERIOD_SECONDS)
        late = clock.monotonic() - began - PERIOD_SECONDS
        tell(max(0.0, min(late, time.process_time() - used)))
