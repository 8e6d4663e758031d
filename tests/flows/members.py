"""Members that are processes of their own: a simulated one, and a real kube-apiserver if found."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.testing.hubs import client_for_test, real_server_for_test
from clusterspace.testing.programs import Program
from clusterspace.testing.stage import PATIENCE, Side

SIM = "sim"
KUBERNETES = "kubernetes"
KINDS = (SIM, KUBERNETES)
"""Tests that take a member by this parameter run once on each; the real one is skipped by name."""
SIM_FIRST = (SIM, pytest.param(KUBERNETES, marks=pytest.mark.slow))
"""The same, where a simulated member shows enough for every day."""


@dataclass
class Member(Side):
    """A member that can be stopped, as a machine that hangs, and go on."""

    process_id: int
    ends_namespaces: bool
    """Whether somebody runs there who ends namespaces; beside a bare kube-apiserver nobody does."""

    def stop(self) -> None:
        os.kill(self.process_id, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process_id, signal.SIGCONT)


@asynccontextmanager
async def running_member(kind: str, directory: Path) -> AsyncGenerator[Member]:
    """Run a member of some kind for as long as the block lasts."""
    running = _running_sim(directory) if kind == SIM else _running_kubernetes(directory)
    async with running as member:
        try:
            yield member
        finally:
            member.go_on()  # a stopped process does not hear that it is to end


@asynccontextmanager
async def _running_sim(directory: Path) -> AsyncGenerator[Member]:
    words = ["sim", "west", "--nodes", "2", "--data-dir", str(directory / "data")]
    process = Program("clusterspace", words, log=directory / "sim.log")
    try:
        kubeconfig = directory / "data" / "kubeconfig"
        async with asyncio.timeout(PATIENCE):
            while not kubeconfig.exists():  # noqa: ASYNC110 - it appears when the member is ready
                await asyncio.sleep(0.05)
        settings = read_kubeconfig([kubeconfig]).settings(cluster="west")
        async with client_for_test(settings) as client:
            yield Member(settings, client, process.pid, ends_namespaces=True)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


@asynccontextmanager
async def _running_kubernetes(directory: Path) -> AsyncGenerator[Member]:
    async with (
        real_server_for_test(directory, name="west") as real,
        client_for_test(real.settings) as client,
    ):
        yield Member(real.settings, client, real.process_id, ends_namespaces=False)
