"""Hubs as processes on one etcd, as clients reach them: now and then one dies or stands still."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.component.hub_wire import CONFIG_MAPS, HubClient, HubProcess, config_map
from tests.component.test_several_hubs import encryption
from tests.robustness.shared_registers import NotDoneError, RefusedError, Seen, UnknownError

from clusterspace.apiserver.store.etcd.client import EtcdSettings

_SECONDS = 8.0
"""How long a client waits for an answer."""


class HubProcesses:
    """Hubs that share an etcd, each with a directory of its own."""

    def __init__(self, directory: Path, etcd: EtcdSettings, count: int) -> None:
        self._directory = directory
        self._command = ["clusterspace", "hub", "--etcd-servers", ",".join(etcd.servers)]
        self._command += ["--etcd-prefix", etcd.prefix]
        self._command += ["--encryption-provider-config", str(encryption(directory))]
        self.running = [self._start(place) for place in range(count)]

    def _start(self, place: int) -> HubProcess:
        directory = self._directory / f"hub-{place}"
        directory.mkdir(exist_ok=True)
        return HubProcess(directory, self._command)

    async def wait_ready(self) -> None:
        for hub in self.running:
            await asyncio.to_thread(hub.wait_ready)

    async def kill(self, random: Random) -> None:
        """Kill one and start it again, on the same directory and another port."""
        place = random.randrange(len(self.running))
        self.running[place].kill()
        await asyncio.sleep(random.uniform(0.1, 1.0))
        self.running[place] = self._start(place)
        await asyncio.to_thread(self.running[place].wait_ready)

    async def freeze(self, random: Random) -> None:
        """Stop one where it is, for longer than anybody waits for an answer of etcd."""
        hub = random.choice(self.running)
        os.kill(hub.process_id, signal.SIGSTOP)
        await asyncio.sleep(random.uniform(0.5, 4.0))
        os.kill(hub.process_id, signal.SIGCONT)

    def end(self) -> None:
        for hub in self.running:
            os.kill(hub.process_id, signal.SIGCONT)
            hub.kill()


class HttpHub:
    """One client's way to one of the hubs."""

    def __init__(self, hubs: HubProcesses, place: int) -> None:
        self._hubs = hubs
        self._place = place
        self._process: HubProcess | None = None
        self._client: HubClient | None = None

    async def read(self, key: str) -> Seen:
        status, body = await self._ask("GET", self._path(key))
        if status == 404:
            return Seen(None, 0)
        if status != 200:
            raise NotDoneError
        return Seen(body["data"]["v"], int(body["metadata"]["resourceVersion"]))

    async def create(self, key: str, value: str) -> int:
        content = config_map(key.strip("/"), data={"v": value})
        return self._version(await self._ask("POST", CONFIG_MAPS, content))

    async def update(self, key: str, value: str, version: int) -> int:
        content = config_map(key.strip("/"), data={"v": value}, resourceVersion=str(version))
        return self._version(await self._ask("PUT", self._path(key), content))

    async def delete(self, key: str, version: int) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": str(version)},
        }
        self._version(await self._ask("DELETE", self._path(key), options))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    @staticmethod
    def _path(key: str) -> str:
        return f"{CONFIG_MAPS}/{key.strip('/')}"

    @staticmethod
    def _version(answer: tuple[int, Any]) -> int:
        status, body = answer
        if status in (200, 201):
            return int(body["metadata"].get("resourceVersion") or 0)
        if status in (404, 409):
            raise RefusedError
        if status == 503:  # the hub says: it has not been carried out
            raise NotDoneError
        raise UnknownError(f"{status}")

    async def _ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        process = self._hubs.running[self._place]
        if self._process is not process or self._client is None:
            self.close()
            try:
                self._client, self._process = process.client(), process
            except OSError:  # it has not written its kubeconfig yet
                raise NotDoneError from None
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await self._client.ask(method, path, content)
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            self.close()
            self._client = None
            if method == "GET":
                raise NotDoneError from None
            raise UnknownError from None
        return answer.status, msgspec.json.decode(answer.body)


def ways(hubs: HubProcesses, count: int) -> Sequence[HttpHub]:
    """Return a client's ways to all hubs."""
    return [HttpHub(hubs, place) for place in range(count)]
