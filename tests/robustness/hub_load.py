"""The clients of a hub that gets killed: writers with a ledger, watchers with a diary.

    python -m tests.robustness.hub_load DATA_DIR PORT SEED

They know nothing of the kills: like any client they lose a connection, try again, resume a watch
where they were, and list again when told 410. Everything they were promised goes into the ledger
(fsynced), everything they were told into the diary. SIGTERM: the writers stop, a last write marks
the end, and the process ends when every watcher has seen it.
"""

import argparse
import asyncio
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tests.component.hub_wire import MERGE_PATCH, Event, HubClient, config_map, tls_of
from tests.component.serving.wire import Answer
from tests.robustness.crash_writer import Journal

WRITERS = 8
KEYS_EACH = 6
SHARED = ("shared-0", "shared-1")
MARKER = "marker"
PAUSE = 0.012
"""Between the writes of one client: compaction must not outrun whoever reads the log."""

BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError, EOFError)
"""What a client sees of a hub that was killed."""

SPACE = "default"
"""There from the start: a namespace of our own could be the write that a planted bug loses."""

COLLECTION = f"/api/v1/namespaces/{SPACE}/configmaps"


@dataclass(frozen=True)
class View:
    """What one watcher asks for; the checker reads its name."""

    name: str
    path: str
    query: str = ""
    jumps: bool = False
    """Whether it starts anywhere in the past or near future instead of where it was."""


VIEWS = (
    View("all", COLLECTION),
    View("everywhere", "/api/v1/configmaps"),
    View("left", COLLECTION, "labelSelector=side%3Dleft"),
    View("one", COLLECTION, f"fieldSelector=metadata.name%3D{SHARED[0]}"),
    View("all jumping", COLLECTION, jumps=True),
    View("left jumping", COLLECTION, "labelSelector=side%3Dleft", jumps=True),
)


class Promises:
    """The highest versions anybody was told, by key and in all: what a later read may not miss."""

    def __init__(self) -> None:
        self.latest = 0
        self.by_key: dict[str, int] = {}

    def note(self, key: str, revision: int) -> None:
        self.latest = max(self.latest, revision)
        self.by_key[key] = max(self.by_key.get(key, 0), revision)


class Writer:
    """Creates, replaces, patches, deletes and lists, one request at a time."""

    def __init__(
        self, name: str, client: HubClient, ledger: Journal, promises: Promises, seed: str
    ) -> None:
        self._name, self._client, self._ledger = name, client, ledger
        self._promises = promises
        self._dice = random.Random(f"{seed} {name}")
        self._count = 0

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                await self._step()
                await asyncio.sleep(PAUSE)
            except BROKEN:
                await asyncio.sleep(0.02)

    async def _step(self) -> None:
        if self._dice.random() < 0.05:
            await self._list()
            return
        key = self._dice.choice([*SHARED, *[f"{self._name}-{n}" for n in range(KEYS_EACH)]])
        held = await self._read(key)
        if held is None:
            await self.write("create", key)
        elif self._dice.random() < 0.15:
            await self.write("delete", key, held)
        else:
            await self.write(self._dice.choice(["update", "patch"]), key, held)

    async def _read(self, key: str) -> int | None:
        floor = self._promises.by_key.get(key, 0)
        answer = await self._client.ask("GET", f"{COLLECTION}/{key}")
        if answer.status == 404:
            self._ledger.write("read", key, floor, None, None)
            return None
        held = msgspec.json.decode(answer.body)
        revision = int(held["metadata"]["resourceVersion"])
        self._ledger.write("read", key, floor, revision, held["data"]["op"])
        return revision

    async def _list(self) -> None:
        """Read the collection in pages, all of one moment however long it takes."""
        floor, shown, token = self._promises.latest, dict[str, int](), ""
        limit = self._dice.choice([3, 10, 500])
        while True:
            answer = await self._client.ask("GET", f"{COLLECTION}?limit={limit}&continue={token}")
            if answer.status == 410:
                return  # the pages' moment was forgotten
            page = msgspec.json.decode(answer.body)
            shown |= _versions(page)
            token = page["metadata"].get("continue", "")
            if not token:
                self._ledger.write("list", floor, int(page["metadata"]["resourceVersion"]), shown)
                return

    async def write(self, verb: str, key: str, held: int | None = None, op: str = "") -> bool:
        """Ask for one write; say whether it was acknowledged."""
        self._count += 1
        op = op or f"{self._name}.{self._count}"
        side = "left" if op == MARKER else self._dice.choice(["left", "right"])
        is_conditional = verb in ("update", "delete")
        self._ledger.write("intent", op, verb, key, held if is_conditional else None)
        answer = await self._ask(verb, key, held, op, side)
        if answer.status in (404, 409):
            self._ledger.write("refused", op)
            return False
        assert answer.status < 300, answer
        metadata = msgspec.json.decode(answer.body)["metadata"]
        revision = None if verb == "delete" else int(metadata["resourceVersion"])
        self._ledger.write("ack", op, revision)
        if revision is not None:
            self._promises.note(key, revision)
        return True

    async def _ask(self, verb: str, key: str, held: int | None, op: str, side: str) -> Answer:
        path = f"{COLLECTION}/{key}"
        if verb == "delete":
            condition = {"preconditions": {"resourceVersion": str(held)}}
            return await self._client.ask("DELETE", path, condition)
        if verb == "patch":
            change = {"metadata": {"labels": {"side": side}}, "data": {"op": op}}
            return await self._client.ask("PATCH", path, change, content_type=MERGE_PATCH)
        wanted = config_map(key, labels={"side": side}, data={"op": op})
        if verb == "create":
            return await self._client.ask("POST", COLLECTION, wanted)
        wanted["metadata"]["resourceVersion"] = str(held)
        return await self._client.ask("PUT", path, wanted)


class Watching:
    """Follows one view for as long as the load lasts."""

    def __init__(
        self, view: View, client: HubClient, diary: Journal, promises: Promises, seed: str
    ) -> None:
        self._view, self._client, self._diary = view, client, diary
        self._promises = promises
        self._dice = random.Random(f"{seed} {view.name}")
        self._place: int | None = None
        self._is_over = False

    async def run(self) -> None:
        while not self._is_over:
            try:
                if self._place is None:
                    await self._list()
                elif self._view.jumps:
                    self._jump()
                if not self._is_over:
                    await self._follow()
            except BROKEN:
                await asyncio.sleep(0.02)

    async def _list(self) -> None:
        whole = f"{self._view.path}?{self._view.query}"
        page = await self._client.do("GET", whole)
        self._place = int(page["metadata"]["resourceVersion"])
        self._diary.write("list", self._view.name, self._place, _versions(page))
        # Told 410 at the very end, it lists behind the last write and is never sent that.
        self._is_over = any(each["data"].get("op") == MARKER for each in page["items"])
        if self._is_over:
            self._diary.write("over", self._view.name)

    def _jump(self) -> None:
        """Go anywhere: to what is long forgotten, to the recent past, a little ahead of time.

        One choice is so recent that nothing forgets it: from there the last write is seen.
        """
        latest = self._promises.latest
        self._place = max(1, latest - self._dice.choice([-15, 0, 2, 50, 400, latest]))
        self._diary.write("jump", self._view.name, self._place)

    async def _follow(self) -> None:
        query = f"{self._view.query}&resourceVersion={self._place}&allowWatchBookmarks=true"
        watch = await self._client.watch(self._view.path, query)
        try:
            async with asyncio.timeout(self._dice.uniform(0.1, 3.0)):
                async for event in watch:
                    self._take(event)
                    if self._place is None or self._is_over:
                        return
        except TimeoutError:
            return  # restless: it resumes at once
        finally:
            watch.close()

    def _take(self, event: Event) -> None:
        name = self._view.name
        if event.type == "ERROR":
            assert event.object["code"] == 410, event
            self._diary.write("expired", name, self._place)
            self._place = None
            return
        self._place = event.revision
        if event.type == "BOOKMARK":
            self._diary.write("bookmark", name, event.revision)
            return
        op = event.object["data"].get("op")
        if op is None:
            return  # what the hub puts into every namespace
        self._diary.write("event", name, event.type, event.name, event.revision, op)
        self._is_over = op == MARKER


def _versions(page: dict[str, Any]) -> dict[str, int]:
    found = (each["metadata"] for each in page["items"] if "op" in each["data"])
    return {each["name"]: int(each["resourceVersion"]) for each in found}


async def write_marker(writer: Writer) -> None:
    """Make the last write of all, and see it through."""
    while True:
        try:
            held = await writer._read(SHARED[0])
            if await writer.write("update" if held else "create", SHARED[0], held, MARKER):
                return
        except BROKEN:
            await asyncio.sleep(0.02)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("seed")
    chosen = parser.parse_args()
    stopped, promises = asyncio.Event(), Promises()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    ledger = Journal(chosen.directory / "ledger", synced=True)
    diary = Journal(chosen.directory / "diary", synced=False)

    def client() -> HubClient:
        return HubClient("127.0.0.1", chosen.port, tls_of(chosen.directory))

    writers = [
        Writer(f"w{number}", client(), ledger, promises, chosen.seed) for number in range(WRITERS)
    ]
    async with asyncio.TaskGroup() as watching:
        for view in VIEWS:
            watching.create_task(Watching(view, client(), diary, promises, chosen.seed).run())
        async with asyncio.TaskGroup() as writing:
            for writer in writers:
                writing.create_task(writer.run(stopped))
        await write_marker(writers[0])


if __name__ == "__main__":
    asyncio.run(main())
