"""What interprets kinds of people's own, for a command: scripts and webhooks of the hub."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from clusterspace.aio.tasks import Supervisor, report
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.interpretation.interpreter import Interpreter


@asynccontextmanager
async def interpreting(hub: ClusterClient) -> AsyncGenerator[Interpreter]:
    """Run what controllers ask about kinds: scripts and webhooks count here as there."""
    interpreter = Interpreter(HubCaches(hub))
    await interpreter.read_once(hub)
    async with Supervisor(hub.connection.clock, report) as tasks:
        tasks.keep("interpreter", interpreter.run)
        yield interpreter
