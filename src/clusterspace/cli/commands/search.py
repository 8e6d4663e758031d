"""`clusterspace search`: SQL over the objects of every cluster."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from clusterspace.cli.output import ExitCode, Line, Listing, Output, document_text, show
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.roots.search import Found
    from clusterspace.roots.sql import Result, Row

_CSV: Final = "csv"
_FORMS: Final = (Output.TABLE.value, Output.JSON.value, Output.YAML.value, _CSV)
_ADDED, _REMOVED = "+", "-"


@click.command()
@click.argument("statement")
@click.option("-n", "--namespace", default="", help="Load this namespace only.  [default: all]")
@click.option(
    "-l",
    "--selector",
    default="",
    help="Load what this label selector selects, clusters' labels too.",
)
@click.option("--field-selector", default="", help="Load what this field selector selects.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and show rows that come and go.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(_FORMS),
    default=Output.TABLE.value,
    show_default=True,
    help="How to show it.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Seconds after which the statement is ended.",
)
@click.option(
    "--memory-mib",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="How much the objects that are loaded may take.",
)
@click.option(
    "--kubeconfig",
    "fleet_kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the fleet API server.  [default: KUBECONFIG, else the local one]",
)
@click.option("--context", default="", help="Context in it.  [default: fleet, else the current]")
def search(
    *,
    statement: str,
    namespace: str,
    selector: str,
    field_selector: str,
    watch: bool,
    output: str,
    seconds: float,
    memory_mib: int,
    fleet_kubeconfig: Path | None,
    context: str,
) -> None:
    """Ask the whole fleet in SQL; only SELECT, and only what you may list.

    STATEMENT is a SELECT of SQLite, or the name of a kind. Every kind is a table: pods, nodes,
    deployments_apps. Its columns are cluster, namespace, name, those that kubectl prints (status,
    ready, ...), uid, created, labels, annotations and object, the last three as JSON.

    Objects are listed with your rights in each cluster, and the statement runs in this command.
    Clusters that did not answer are named, and the exit code is 4.

    \b
    Examples:
      clusterspace search pods -n shop
      clusterspace search "select cluster, name, status from pods where status <> 'Running'"
      clusterspace search "select cluster, count(*) as pods from pods group by cluster"
      clusterspace search "select cluster, name, object->>'$.status.nodeInfo.kubeletVersion' as
        kubelet from nodes order by kubelet" -o csv
      clusterspace search "select * from deployments_apps" -l clusterspace.io/cluster=west -w
    """
    from clusterspace.roots.kubeconfigs import fleet_settings
    from clusterspace.roots.search import DETAILS, Selection, open_search, statement_for
    from clusterspace.roots.sql import Bounds

    text = statement_for(statement)
    # Whoever names a kind wants to look at it; programs are given all there is.
    hidden = DETAILS if text != statement and output in (Output.TABLE.value, _CSV) else ()
    selection = Selection(namespace, selector, field_selector)
    bounds = Bounds(seconds=seconds, table_bytes=memory_mib * 1024 * 1024)
    settings = fleet_settings(fleet_kubeconfig, context)

    async def once() -> "Found":
        async with open_search(text, selection, bounds, settings) as opened:
            return await opened.run()

    async def follow() -> None:
        changes = ChangePrinter(output, hidden)
        async with open_search(text, selection, bounds, settings) as opened:
            await opened.follow(changes.show, _warn)

    if watch:
        run(follow)
        return
    found = run(once)
    show_rows(found.result, output, hidden, incomplete=[] if found.is_complete else found.warnings)
    for warning in found.warnings:
        _warn(warning)
    if not found.is_complete:
        raise SystemExit(ExitCode.INCOMPLETE)


def show_rows(
    result: "Result", output: str, hidden: Iterable[str] = (), *, incomplete: Sequence[str] = ()
) -> None:
    """Show the rows of a statement."""
    kept = [at for at, name in enumerate(result.columns) if name not in hidden]
    columns = [result.columns[at] for at in kept]
    rows = [[row[at] for at in kept] for row in result.rows]
    if output == _CSV:
        click.echo(csv_of([columns, *rows]), nl=False)
        return
    lines = tuple(Line("", tuple(map(cell_of, row))) for row in rows)
    named = unique(columns)
    document = {"rows": [dict(zip(named, row, strict=True)) for row in rows]}
    document |= {"incomplete": list(incomplete)} if incomplete else {}
    heads = tuple(each.upper() for each in columns)
    show(Listing(heads, lines, document, nothing="no rows"), output)


class ChangePrinter:
    """Shows which rows came and went since the last time."""

    def __init__(self, output: str, hidden: Iterable[str] = ()) -> None:
        self._output = output
        self._hidden = frozenset(hidden)
        self._last: Counter[Row] = Counter()
        self._is_first = True
        self._warned: tuple[str, ...] = ()

    def show(self, found: "Found") -> None:
        """Show rows that are no longer there, then those that are new, in their order."""
        kept = [at for at, name in enumerate(found.result.columns) if name not in self._hidden]
        columns = [found.result.columns[at] for at in kept]
        rows = [tuple(row[at] for at in kept) for row in found.result.rows]
        now = Counter(rows)
        gone, new = self._last - now, now - self._last
        signed = [(_REMOVED, row) for row in gone.elements()]
        for row in rows:
            if new[row] > 0:
                new[row] -= 1
                signed.append((_ADDED, row))
        self._last = now
        self._show(columns, signed)
        self._is_first = False
        if found.warnings != self._warned:
            self._warned = found.warnings
            for warning in found.warnings:
                _warn(warning)

    def _show(self, columns: Sequence[str], signed: Sequence[tuple[str, "Row"]]) -> None:
        if self._output == Output.TABLE.value:
            lines = tuple(Line("", (sign, *map(cell_of, row))) for sign, row in signed)
            heads = ("", *(each.upper() for each in columns))
            if lines:
                show(Listing(heads, lines, None), Output.TABLE.value, has_head=self._is_first)
            return
        if self._output == _CSV:
            head = [["change", *columns]] if self._is_first else []
            click.echo(csv_of([*head, *([sign, *row] for sign, row in signed)]), nl=False)
            return
        named = unique(columns)
        for sign, row in signed:
            document = {
                "change": "added" if sign == _ADDED else "removed",
                "row": dict(zip(named, row, strict=True)),
            }
            if self._output == Output.YAML.value:
                click.echo(f"---\n{document_text(document, Output.YAML)}", nl=False)
            else:
                import msgspec

                click.echo(msgspec.json.encode(document).decode())


def unique(columns: Sequence[str]) -> list[str]:
    """Return names of columns for fields of an object: one that is there twice has a number.

    >>> unique(["name", "name", "phase"])
    ['name', 'name_2', 'phase']
    """
    seen: Counter[str] = Counter()
    named: list[str] = []
    for each in columns:
        seen[each] += 1
        named.append(each if seen[each] == 1 else f"{each}_{seen[each]}")
    return named


def cell_of(value: Any) -> str:
    """Return a value as a cell that a terminal may be shown: members wrote it."""
    from clusterspace.kube import plain_text

    if value is None:
        return ""
    return plain_text.line(f"x'{value.hex()}'" if isinstance(value, bytes) else str(value))


def csv_of(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV, each cell one line, and none that a spreadsheet would run."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for row in rows:
        writer.writerow(
            [_inert(cell_of(each)) if isinstance(each, str) else cell_of(each) for each in row]
        )
    return written.getvalue()


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and len(text) > 1 else text


def _warn(warning: str) -> None:
    click.echo(f"Warning: {warning}", err=True)
