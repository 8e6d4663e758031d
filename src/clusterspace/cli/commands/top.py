"""`clusterspace top`: the first screen of the page, for those without a browser."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from clusterspace.cli.options import HubOptions, hub_options
from clusterspace.cli.output import NONE, ExitCode, Output, document_text, people_console
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from clusterspace.fleet.page.problems import ClusterRow, Problem
    from clusterspace.roots.top import FirstScreen, Overview

_REFRESH_SECONDS: Final = 10.0
"""Ages are drawn anew as they grow; nothing is asked for it."""
_SHORTEST_SECONDS: Final = 0.25
"""However much changes, it is drawn no more often: nobody reads faster."""
_WIDTH_FOR_TAINTS: Final = 100
_FEWEST_LINES: Final = 3
_LINES_EACH: Final = 3
_STYLES: Final = {
    "cluster": "red", "apply": "red", "schedule": "red", "unwell": "red",
    "health": "yellow", "drift": "yellow", "silent": "yellow",
    "eviction": "cyan", "paused": "yellow", "leaving": "cyan", "joining": "cyan", "well": "green",
}  # fmt: skip


@click.command()
@click.argument("words", nargs=-1)
@click.option("--once", is_flag=True, help="Show it once, and end.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to show it; JSON and YAML are shown once.",
)
@hub_options
def top(*, words: tuple[str, ...], once: bool, output: str, hub: HubOptions) -> None:
    """Show what is broken, where, and why; then every cluster. As it changes.

    WORDS narrow it to what has all of them, in any place. In a terminal it stays, and the keys are:
    arrows and PageUp, PageDown for more clusters, q to end. In a pipe it shows everything, and then
    what breaks and what is mended, a line each. Shown once, it ends with 1 if anything is broken,
    or cannot be seen.

    \b
    Examples:
      clusterspace top
      clusterspace top --once
      clusterspace top shop east
      clusterspace top -o json
    """
    from clusterspace.telemetry.logs import Format, Level, configure

    # What is wrong is on the screen: lines of a log across it help nobody.
    configure(Format("console"), Level.ERROR, sys.stderr)
    is_once = once or output != "text"

    async def work() -> bool:
        from clusterspace.roots.top import following

        async with following(hub.settings()) as overview:
            if is_once:
                return _show_once(_narrowed(overview.screen(), words), output)
            if people_console().is_terminal:
                await _stay(overview, words)
            else:
                await _print_changes(overview, words)
            return True

    try:
        is_well = run(work)
    except KeyboardInterrupt:
        return
    if not is_well:
        raise SystemExit(ExitCode.FAILED)


def _show_once(screen: "FirstScreen", output: str) -> bool:
    """Show all of it; return whether all is well."""
    if output == "text":
        _print_whole(screen)
    else:
        click.echo(document_text(_document(screen), Output(output)), nl=False)
    return not screen.problems and not screen.notices


def _print_whole(screen: "FirstScreen") -> None:
    console = people_console()
    for notice in screen.notices:
        click.echo(_plain(notice), err=True)
    console.print(_headline(screen))
    if screen.problems:
        console.print()
        console.print(_problem_table(screen.problems, is_whole=True))
    if screen.clusters:
        console.print()
        width = console.width
        console.print(_cluster_table(screen.clusters, has_taints=width >= _WIDTH_FOR_TAINTS))


async def _print_changes(overview: "Overview", words: Sequence[str]) -> None:
    """Print everything once, and then what breaks and what is mended."""
    screen = _narrowed(overview.screen(), words)
    _print_whole(screen)
    seen = {_identity(each): each for each in screen.problems}
    notices = screen.notices
    while True:
        sys.stdout.flush()
        await overview.wait_changed(_REFRESH_SECONDS)
        screen = _narrowed(overview.screen(), words)
        now = {_identity(each): each for each in screen.problems}
        for notice in set(screen.notices) - set(notices):
            click.echo(_plain(notice), err=True)
        for key in [each for each in seen if each not in now]:
            click.echo(f"mended  {_line(seen[key])}")
        for key, problem in now.items():
            if key not in seen or seen[key].why != problem.why:
                click.echo(f"broken  {_line(problem)}")
        seen, notices = now, screen.notices


async def _stay(overview: "Overview", words: Sequence[str]) -> None:
    """Draw it over and over in its place, until somebody presses q."""
    import asyncio

    from rich.live import Live

    console = people_console()
    first, is_pressed, is_over = 0, False, False

    def press(keys: str) -> None:
        nonlocal first, is_pressed, is_over
        steps = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -20, "\x1b[6~": 20}
        first = max(0, first + steps.get(keys, 0))
        is_pressed, is_over = True, is_over or keys in ("q", "Q", "\x1b", "\x04")
        overview.wake()

    with _keys(press), Live(console=console, screen=True, auto_refresh=False) as live:
        while not is_over:
            screen = _narrowed(overview.screen(), words)
            first = min(first, max(0, len(screen.clusters) - 1))
            live.update(_page(screen, console.width, console.height, first), refresh=True)
            is_pressed = False
            await overview.wait_changed(_REFRESH_SECONDS)
            if not is_pressed:
                await asyncio.sleep(_SHORTEST_SECONDS)


@contextmanager
def _keys(press: Callable[[str], None]) -> Generator[None]:
    """Have keys told as they are pressed, where there is a keyboard."""
    import asyncio
    import os
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()
    tty.setcbreak(number)
    loop.add_reader(number, lambda: press(os.read(number, 32).decode(errors="replace")))
    try:
        yield
    finally:
        loop.remove_reader(number)
        with suppress(termios.error):  # the terminal itself may be gone
            termios.tcsetattr(number, termios.TCSADRAIN, before)


def _page(screen: "FirstScreen", width: int, height: int, first: int) -> "RenderableType":
    """Return the whole screen, cut to the lines that a terminal has."""
    from rich.console import Group
    from rich.text import Text

    notices = [Text(_plain(each), style="yellow", no_wrap=True) for each in screen.notices]
    # The headline, a line between the parts, the head of the clusters, and the last line.
    room = max(height - len(notices) - 5, 2 * _FEWEST_LINES)
    most = max(_FEWEST_LINES, room - min(len(screen.clusters), room // 2))
    problems = screen.problems
    if len(problems) > most:
        problems = problems[: most - 1]
    parts: list[RenderableType] = [_headline(screen), *notices, ""]
    if problems:
        # Reasons in whole where there are lines for them.
        parts.append(_problem_table(problems, is_whole=_LINES_EACH * len(problems) <= most))
    if left := len(screen.problems) - len(problems):
        parts.append(Text(f"and {left} more: `clusterspace top --once` shows all", style="dim"))
    shown = screen.clusters[
        first : first + max(_FEWEST_LINES, room - min(len(screen.problems), most))
    ]
    parts += ["", _cluster_table(shown, has_taints=width >= _WIDTH_FOR_TAINTS)]
    last = first + len(shown)
    where = f"{first + 1}-{last} of {len(screen.clusters)} clusters · " if shown else ""
    parts.append(Text(f"{where}arrows scroll · q ends", style="dim"))
    return Group(*parts)


def _headline(screen: "FirstScreen") -> "RenderableType":
    from rich.text import Text

    counts: dict[str, int] = {}
    for each in screen.clusters:
        counts[each.state.name] = counts.get(each.state.name, 0) + 1
    states = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    clusters = f"{len(screen.clusters)} cluster{'' if len(screen.clusters) == 1 else 's'}"
    if screen.problems:
        what, style = f"{len(screen.problems)} broken", "bold red"
    elif screen.notices:
        what, style = "whether something is broken is not known", "bold yellow"
    else:
        what, style = "nothing is broken, as far as is known", "bold green"
    joined = f"{clusters}: {states}" if states else "no cluster has joined yet"
    return Text.assemble((what, style), " · ", joined)


def _problem_table(problems: "Sequence[Problem]", *, is_whole: bool = False) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, expand=not is_whole)
    overflow = "fold" if is_whole else "ellipsis"
    table.add_column(no_wrap=True)
    for _ in ("what", "where"):
        table.add_column(no_wrap=not is_whole, overflow=overflow, max_width=36)
    table.add_column(no_wrap=not is_whole, overflow=overflow, ratio=None if is_whole else 1)
    table.add_column(no_wrap=True, justify="right")
    for each in problems:
        table.add_row(
            Text(each.word, style=_STYLES[each.kind]),
            Text(_plain(each.what)),
            Text(_plain(each.cluster), style="dim"),
            Text(_plain(each.why)),
            Text(_age(each.since), style="dim"),
        )
    return table


def _cluster_table(rows: "Sequence[ClusterRow]", *, has_taints: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("CLUSTER", "STATE", "VERSION"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("NODES", "CPU", "MEM", "PODS", "PLACED", "FAILING"):
        table.add_column(name, no_wrap=True, justify="right")
    if has_taints:
        table.add_column("TAINTS", no_wrap=True, overflow="ellipsis")
    for each in rows:
        since = "" if each.state.name == "well" else _age(each.state.since)
        state = f"{each.state.name} for {since}" if since else each.state.name
        if each.is_paused:
            state += ", deletions paused"
        shares = (NONE if share is None else f"{share}%" for share in each.shares)
        cells = [each.name, state, each.version or NONE, each.nodes or NONE, *shares]
        cells += [str(each.placed), str(each.failing)]
        texts = [Text(_plain(cell)) for cell in cells]
        texts[1].stylize(_STYLES[each.state.name])
        if each.failing:
            texts[-1].stylize("bold red")
        if has_taints:
            texts.append(Text(_plain(each.taints) or NONE))
        table.add_row(*texts)
    return table


def _narrowed(screen: "FirstScreen", words: Sequence[str]) -> "FirstScreen":
    """Return the part of the screen that has all the words."""
    from dataclasses import replace

    def has_all(*texts: str) -> bool:
        whole = " ".join(texts).lower()
        return all(each.lower() in whole for each in words)

    if not words:
        return screen
    return replace(
        screen,
        problems=tuple(
            each for each in screen.problems
            if has_all(each.word, each.what, each.cluster, each.why)
        ),
        clusters=tuple(
            each for each in screen.clusters
            if has_all(each.name, each.state.name, each.version, each.taints)
        ),
    )  # fmt: skip


def _document(screen: "FirstScreen") -> dict[str, Any]:
    return {
        "notices": list(screen.notices),
        "problems": [
            {"is": each.kind, "word": each.word, "what": each.what, "cluster": each.cluster,
             "why": each.why, "since": each.since}
            for each in screen.problems
        ],
        "clusters": [
            {"name": each.name, "state": each.state.name, "since": each.state.since,
             "why": each.state.why, "version": each.version, "nodes": each.nodes,
             "cpuPercent": each.shares[0], "memoryPercent": each.shares[1],
             "podsPercent": each.shares[2], "placed": each.placed, "failing": each.failing,
             "taints": each.taints, "deletionsPaused": each.is_paused}
            for each in screen.clusters
        ],
    }  # fmt: skip


def _identity(problem: "Problem") -> tuple[str, str]:
    return problem.kind, problem.key


def _line(problem: "Problem") -> str:
    words = (problem.word, problem.what, problem.cluster or NONE, problem.why)
    return "  ".join(map(_plain, words))


def _plain(text: str) -> str:
    """Return a text that only says something: what members write must not steer a terminal."""
    return "".join(each if each.isprintable() else " " for each in text)


def _age(since: str) -> str:
    from clusterspace.aio.clocks import SystemClock
    from clusterspace.errors import Malformed
    from clusterspace.kube.times import age, parse_time

    try:
        return age(max(SystemClock().now() - parse_time(since), 0.0)) if since else ""
    except Malformed:
        return ""
