"""`search` put together: SQL over objects of every cluster, as whoever asks may list them.

    statement ──check──> tables it names ──a list of the view each──> rows ──select──> the answer
                                                └──watch of the view──> rows, and select again

A table is what the fleet API server lists for the caller, so a statement finds what its author may
list, cluster by cluster, and nothing else. It runs in the memory of this process, on what was
listed for it: no server runs a statement of anybody.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, KeysView, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.http.responses import warnings_in
from clusterspace.builtins.printers.cells import PrintedColumn
from clusterspace.builtins.printers.registry import find_fleet_printer, printer_for
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import (
    ClusterClient,
    ListOptions,
    RawObject,
    Version,
    read_page,
)
from clusterspace.client.settings import ConnectionSettings
from clusterspace.client.watch import EventType, ObjectChange, Reflector
from clusterspace.errors import AnswerOverrun, NotServed, UnusableStatement
from clusterspace.fleet.gateway.merge.failures import INCOMPLETE
from clusterspace.fleet.gateway.routes import HUB, split
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import ResourceInfo
from clusterspace.roots.clients import open_client
from clusterspace.roots.sql import (
    Bounds,
    Database,
    NoSuchTable,
    Result,
    Row,
    Value,
)

COLUMNS: Final = (
    "cluster",
    "namespace",
    "name",
    "uid",
    "created",
    "labels",
    "annotations",
    "object",
)
"""Of every table; those that `kubectl get` prints for the kind stand between name and uid."""

DETAILS: Final = ("uid", "labels", "annotations", "object")
"""Columns that are long, for those who look at a kind and not at one of these."""

_SECONDS: Final = 60.0
"""For one list: longer than the fleet API server waits for its clusters."""
_MOST_TABLES: Final = 16
_PAUSE: Final = 0.2
"""Between a change and the next run: changes come in waves."""
_LOOK_AFTER: Final = 5.0
"""How often it is looked whether changes are still heard of."""
_MALFORMED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_RELATIVE: Final = frozenset({"age", "last_seen", "last_schedule", "duration"})
"""Columns that say how long ago something was: they would be old as soon as they are loaded."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects are loaded, of every kind that a statement names."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a statement has found, and what is known to be missing."""

    result: Result
    warnings: tuple[str, ...] = ()
    """What the fleet API server had to say about the lists."""

    @property
    def is_complete(self) -> bool:
        """Whether every cluster that the caller may reach has had its part in it."""
        return not any(each.startswith(INCOMPLETE) for each in self.warnings)


def find_table(served: ServedResources, table: str) -> ResourceInfo:
    """Return the kind a table is of: `pods`, `deploy`, `deployments_apps`, `"deployments.apps"`.

    In a group's name all but letters and digits may be an underline, which SQL needs no quotes for.
    """
    name, _, group = re.sub(r"[^a-z0-9]", "_", table.lower()).partition("_")
    for each in served.resources:
        named = {each.plural, each.singular, each.kind.lower(), *each.short_names}
        is_group = not group or re.sub(r"[^a-z0-9]", "_", each.group or "core") == group
        if name in named and is_group and "list" in each.verbs:
            return each
    raise NotServed(
        f"no cluster serves anything called {table}; `kubectl api-resources` names what there is, "
        "and a group may follow: deployments_apps"
    )


class _Table:
    """One kind: the objects that rows were made of, by key, and how to make a row."""

    def __init__(self, name: str, resource: ResourceInfo, clock: Clock) -> None:
        self.name = name
        self.resource = resource
        self.warnings: tuple[str, ...] = ()
        self.position = ""
        self._clock = clock
        self._rows: dict[str, tuple[int, Version]] = {}
        self._next = 1
        printer = find_fleet_printer(resource.group, resource.kind)
        printer = printer or printer_for(resource.group, resource.kind)
        self._printed: dict[str, PrintedColumn] = {}
        for each in printer.printed:
            name_of_column = re.sub(r"[^a-z0-9]+", "_", each.column.name.lower()).strip("_")
            if name_of_column not in {*COLUMNS, *_RELATIVE, *self._printed}:
                self._printed[name_of_column] = each
        self.columns = (*COLUMNS[:3], *self._printed, *COLUMNS[3:])
        self.read: Collection[str] = self.columns
        """The columns that are filled in: others take time and room, and nobody looks at them."""

    # What a Reflector wants to know.

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects there are rows of."""
        return self._rows.keys()

    def find_version(self, key: str) -> Version | None:
        """Return the state of an object that its row was made of."""
        found = self._rows.get(key)
        return found and found[1]

    def upsert(self, items: Iterable[RawObject]) -> list[tuple[int, Row]]:
        """Return the rows to write for objects, by their numbers."""
        return [(self._number(each), self._row(each)) for each in items]

    def drop(self, keys: Iterable[str]) -> list[int]:
        """Return the numbers of rows to delete."""
        return [found[0] for key in keys if (found := self._rows.pop(key, None)) is not None]

    def _number(self, item: RawObject) -> int:
        known = self._rows.get(item.key)
        number = known[0] if known else self._next
        self._next += known is None
        self._rows[item.key] = (number, item.version)
        return number

    def _row(self, item: RawObject) -> Row:
        metadata = _read_head(item.raw).metadata
        named = split(str(metadata.get("name")))
        values: dict[str, Value] = {
            "cluster": named.cluster or HUB,
            "namespace": _value(metadata.get("namespace")),
            "name": named.name,
            "uid": _value(metadata.get("uid")),
            "created": _value(metadata.get("creationTimestamp")),
            "labels": _value(metadata.get("labels") or {}),
            "annotations": _value(metadata.get("annotations") or {}),
        }
        if "object" in self.read:
            values["object"] = item.raw.decode()
        printed = [each for each in self._printed if each in self.read]
        if printed:
            kube_object, now = item.decode(), self._clock.now()
            for each in printed:
                values[each] = _cell(self._printed[each], kube_object, now)
        return tuple(values.get(each) for each in self.columns)


class _Head(msgspec.Struct):
    metadata: dict[str, Any]


_read_head: Final = msgspec.json.Decoder(_Head).decode


def _cell(printed: PrintedColumn, kube_object: Object, now: float) -> Value:
    try:
        return _value(printed.cell(kube_object, now))
    except _MALFORMED:
        return None  # an object that no API server takes, from a member that made it up


def _value(value: Any) -> Value:
    """Return a value of JSON as SQL has it: what is nested stays JSON."""
    if value is None or isinstance(value, str | int | float):
        return value
    return msgspec.json.encode(value).decode()


@dataclass
class Search:
    """One statement over the fleet, run once or again and again."""

    client: ClusterClient
    statement: str
    selection: Selection = field(default_factory=Selection)
    bounds: Bounds = field(default_factory=Bounds)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._database = Database(self.clock, self.bounds)
        self._tables: list[_Table] = []
        # Rows change between two runs, never during one: the thread that runs the statement and
        # the tasks that hear of changes take turns.
        self._turn = asyncio.Lock()

    async def run(self) -> Found:
        """Load what the statement names, and run it."""
        await self._find_tables()
        for table in self._tables:
            await self._load(table)
        return Found(await self._select(), self._warnings())

    async def follow(self, show: Callable[[Found], None], warn: Callable[[str], None]) -> None:
        """Run the statement, and again whenever something has changed, until cancelled.

        A cluster that falls silent takes no row away: rows go by the word of their cluster.
        """
        show(await self.run())
        changed = asyncio.Event()
        reflectors = [self._reflector(each) for each in self._tables]
        async with asyncio.TaskGroup() as group:
            for table, reflector in zip(self._tables, reflectors, strict=True):
                feed = self._feed(table, reflector, changed)
                group.create_task(feed, name=f"follow {table.name}")
            troubles: set[str] = set()
            while True:
                try:
                    async with asyncio.timeout(_LOOK_AFTER):
                        await changed.wait()
                except TimeoutError:
                    seen = {str(each.trouble) for each in reflectors if each.trouble}
                    for trouble in seen - troubles:
                        warn(f"changes are not heard of at the moment: {trouble}")
                    troubles = seen
                    continue
                await self.clock.sleep(_PAUSE)
                changed.clear()
                show(Found(await self._select(), self._warnings()))

    def close(self) -> None:
        """Forget everything."""
        self._database.close()

    async def _find_tables(self) -> None:
        """Make the tables that the statement names, empty, so that a wrong one costs no list."""
        discovery = Discovery(self.client.connection)
        while True:
            try:
                shape = self._database.check(self.statement)
            except NoSuchTable as missing:
                made = {each.name.lower() for each in self._tables}
                if missing.table.lower() in made:
                    raise UnusableStatement(f"there is no table {missing.table}") from missing
                if len(made) >= _MOST_TABLES:
                    raise UnusableStatement(f"more than {_MOST_TABLES} tables") from missing
                resource = find_table(await discovery.served(), missing.table)
                table = _Table(missing.table, resource, self.clock)
                self._database.create(table.name, table.columns)
                self._tables.append(table)
            else:
                for table in self._tables:
                    table.read = shape.read.get(table.name.lower(), ())
                return

    def _place(self, table: _Table) -> ResourcePath:
        resource = table.resource
        namespace = self.selection.namespace if resource.namespaced else ""
        return ResourcePath(resource.group_version_resource, namespace)

    async def _load(self, table: _Table) -> None:
        """List a kind as a person does: of clusters that do not answer, a warning tells."""
        chosen = {
            "labelSelector": self.selection.label_selector,
            "fieldSelector": self.selection.field_selector,
        }
        request = ApiRequest(
            "GET",
            self._place(table).path,
            tuple((key, value) for key, value in chosen.items() if value),
            seconds=_SECONDS,
            most_bytes=self.bounds.table_bytes,
        )
        try:
            answer = await self.client.connection.ask(request)
        except AnswerOverrun as error:
            most = self.bounds.table_bytes // (1024 * 1024)
            raise UnusableStatement(
                f"{table.name} takes more than {most} MiB or {_SECONDS:g}s; select fewer with "
                "-n or -l, or raise --memory-mib"
            ) from error
        table.warnings = tuple(warnings_in(answer.headers, ""))

        def fill() -> str:
            page = read_page(self.client.cluster, answer.body)
            self._database.put(table.name, table.upsert(page.items))
            return page.head.resource_version

        table.position = await asyncio.to_thread(fill)

    async def _select(self) -> Result:
        loop = asyncio.get_running_loop()
        async with self._turn:
            running = loop.run_in_executor(None, self._database.select, self.statement)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The turn ends when the thread does, or somebody would close the database under it.
                self._database.interrupt()
                await asyncio.wait((running,))
                running.exception()
                raise

    def _reflector(self, table: _Table) -> Reflector:
        options = ListOptions(
            label_selector=self.selection.label_selector,
            field_selector=self.selection.field_selector,
        )
        return Reflector(self.client, self._place(table), table, options, table.position)

    async def _feed(self, table: _Table, reflector: Reflector, changed: asyncio.Event) -> None:
        async with aclosing(reflector.batches()) as batches:
            async for batch in batches:
                if batch.changes:
                    async with self._turn:
                        self._apply(table, batch.changes)
                    changed.set()

    def _apply(self, table: _Table, changes: Sequence[ObjectChange]) -> None:
        # In the order they came: one batch may have the end of an object and the next of its name.
        for change in changes:
            if change.type is EventType.DELETED:
                self._database.remove(table.name, table.drop((change.item.key,)))
            else:
                self._database.put(table.name, table.upsert((change.item,)))

    def _warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(said for each in self._tables for said in each.warnings))


@asynccontextmanager
async def open_search(
    statement: str, selection: Selection, bounds: Bounds, fleet: ConnectionSettings
) -> AsyncGenerator[Search]:
    """Open a search at a fleet API server; leaving the block forgets what it loaded."""
    async with open_client(fleet) as client:
        search = Search(client, statement, selection, bounds)
        try:
            yield search
        finally:
            search.close()


def statement_for(words: str) -> str:
    """Return a statement as it is, and for the name of a kind alone one that shows its objects.

    >>> statement_for("pods")
    'select * from "pods"'
    """
    text = words.strip()
    is_kind = re.fullmatch(r"[A-Za-z0-9_.-]+", text)
    return f'select * from "{text}"' if is_kind else text  # noqa: S608
