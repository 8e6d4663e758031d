"""A user who takes all they can get: `python -m tests.bench.flood HOST PORT KINDS`.

A process of its own, behind those it is measured with: what it costs to be a client must not count.
It says `ready` once it is at it, and how many answers it has had when its input ends.
"""

import asyncio
import os
import ssl
import sys
from collections import Counter

import msgspec
from tests.component.hub_wire import HubClient, config_map, request_bytes

from clusterspace.aio import event_loop

STOCK = "/api/v1/namespaces/flood/configmaps"
WORK = "/api/v1/namespaces/work/configmaps"
CONNECTIONS = 64
WATCHES = 2_000
OPENED_AT_ONCE = 8


class Flood:
    """Many connections of one user, each asking again as soon as it is answered."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self.codes: Counter[int] = Counter()
        self.events = 0

    async def list_all(self) -> None:
        raw = request_bytes("GET", STOCK, token=self._client.token)
        connection = await self._client.connect()
        while True:
            self.codes[(await connection.ask(raw)).status] += 1

    async def write(self, number: int) -> None:
        body = config_map(f"mine-{number}", namespace="flood", data={"k": "v" * 500})
        connection = await self._client.connect()
        written = 0
        while True:
            written += 1
            body["data"] = {"k": f"{written} " + "v" * 500}
            how = ("PUT", f"{STOCK}/mine-{number}") if written > 1 else ("POST", STOCK)
            raw = request_bytes(
                *how,
                body=msgspec.json.encode(body),
                content_type="application/json",
                token=self._client.token,
            )
            self.codes[(await connection.ask(raw)).status] += 1

    async def watch(self, gate: asyncio.Semaphore, group: asyncio.TaskGroup) -> None:
        async with gate:
            stream = await self._client.watch(WORK, "resourceVersion=0&allowWatchBookmarks=true")

        async def read() -> None:
            reader = stream._connection.reader
            while await reader.read(2**16):
                self.events += 1

        group.create_task(read())


async def flood(kinds: list[str], client: HubClient) -> None:
    one = Flood(client)
    at_once = CONNECTIONS // (2 if len(kinds) > 1 else 1)
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    async with asyncio.TaskGroup() as group:
        if "watches" in kinds:
            gate = asyncio.Semaphore(OPENED_AT_ONCE)
            async with asyncio.TaskGroup() as opening:
                for _ in range(WATCHES):
                    opening.create_task(one.watch(gate, group))
        tasks = [group.create_task(one.list_all()) for _ in range(at_once * ("lists" in kinds))]
        tasks += [
            group.create_task(one.write(number)) for number in range(at_once * ("writes" in kinds))
        ]
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await ended
        print(dict(one.codes), one.events, flush=True)
        os._exit(0)  # two thousand connections need not be closed one by one


def main() -> None:
    os.nice(5)
    host, port, *kinds = sys.argv[1:]
    tls = ssl._create_unverified_context()  # loopback, and nothing that is worth keeping
    client = HubClient(host, int(port), tls, "flood-token")
    event_loop.run(flood(kinds, client))


if __name__ == "__main__":
    main()
