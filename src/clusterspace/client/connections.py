"""One connection set for each cluster, replaced when its address or credentials change."""

from collections.abc import Callable
from typing import TypeAlias

from clusterspace.client.connection import Connection
from clusterspace.client.settings import ConnectionSettings

Open: TypeAlias = Callable[[ConnectionSettings], Connection]
"""Opens a connection; the process that runs us decides how."""


class Connections:
    """The connections to many clusters, by name."""

    def __init__(self, open_connection: Open) -> None:
        self._open = open_connection
        self._held: dict[str, Connection] = {}

    async def get(self, settings: ConnectionSettings) -> Connection:
        """Return the connection these settings stand for; what it replaces is closed."""
        held = self._held.get(settings.cluster)
        if held is not None and held.settings == settings:
            return held
        # Entered before anything is awaited: two that ask at once get the same one.
        opened = self._held[settings.cluster] = self._open(settings)
        if held is not None:
            await held.close()
        return opened

    async def forget(self, cluster_name: str) -> None:
        """Close the connection to a cluster, if there is one."""
        held = self._held.pop(cluster_name, None)
        if held is not None:
            await held.close()

    async def close(self) -> None:
        """Close all connections."""
        for name in list(self._held):
            await self.forget(name)
