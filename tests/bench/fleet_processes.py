"""Members and controllers as processes of their own, for benchmarks of a whole fleet."""

import asyncio
import gc
import multiprocessing
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from clusterspace.aio import event_loop
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.settings import ConnectionSettings
from clusterspace.roots.settings import SimSettings
from clusterspace.roots.sim import running_sim
from clusterspace.telemetry.logs import Format, Level, configure

MEMBER_PROCESSES = 2
SERIES = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


@contextmanager
def in_processes(
    run: Callable[[Path, Sequence[str], Pipe], None], directory: Path, members: Sequence[str]
) -> Generator[tuple[int, ...]]:
    """Run members, spread over some processes; yield the ids of those.

    `run` serves its share until the pipe says something, and says itself when they are ready.
    """
    spawning = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        waiting: list[Callable[[], object]] = []
        processes: list[int] = []
        for number in range(MEMBER_PROCESSES):
            ours, theirs = spawning.Pipe()
            share = members[number::MEMBER_PROCESSES]
            process = spawning.Process(target=run, args=(directory, share, theirs))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            waiting.append(ours.recv)
            processes.append(process.pid or 0)
        for wait_until_ready in waiting:
            wait_until_ready()
        yield tuple(processes)


def running_sims(
    directory: Path, members: Sequence[str]
) -> AbstractContextManager[tuple[int, ...]]:
    """Run simulated members, spread over some processes; yield the ids of those."""
    return in_processes(_run_sims, directory, members)


def sim_settings(directory: Path, name: str) -> ConnectionSettings:
    """Return how the administrator of a simulated member reaches it."""
    return read_kubeconfig([directory / name / "kubeconfig"]).settings(cluster=name)


class ControllersEnded(Exception):
    """The controllers gave up while they were needed."""


@contextmanager
def running_controllers(kubeconfig: Path, metrics_port: int, *options: str) -> Generator[int]:
    """Run the controllers as a user does, and let them end in good order; yield their process."""
    command = [sys.executable, "-m", "clusterspace", "controllers", *options]
    command += ["--allow-member-cidrs", "127.0.0.0/8"]
    identity = kubeconfig.parent / "parts" / "controllers" / "kubeconfig"
    command += ["--hub-kubeconfig", str(identity), "--metrics-port", str(metrics_port)]
    log = kubeconfig.parent / "controllers.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process.pid
        if process.poll() is not None:
            raise ControllersEnded(log.read_text().rpartition("Traceback")[2])
    finally:
        process.terminate()
        process.wait()


def series_of(metrics_port: int, metric: str) -> dict[str, float]:
    """Return the values of one of the controllers' metrics by their labels, as they are written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        return find_series(answer.read().decode(), metric)


def find_series(page: str, metric: str) -> dict[str, float]:
    """Return the values of one metric of a page by their labels, as they are written."""
    found = SERIES.findall(page)
    return {labels: float(value) for name, labels, value in found if name == metric}


def _run_sims(directory: Path, members: Sequence[str], pipe: Pipe) -> None:
    configure(Format.JSON, Level.ERROR, sys.stderr)
    event_loop.run(_serve_sims(directory, members, pipe))


async def _serve_sims(directory: Path, members: Sequence[str], pipe: Pipe) -> None:
    """Run simulated members in this process until the pipe says something."""
    async with AsyncExitStack() as stack:
        for name in members:
            settings = SimSettings(name, directory / name, nodes=1)
            await stack.enter_async_context(running_sim(settings))
        gc.freeze()  # as a member in a process of its own does
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)
