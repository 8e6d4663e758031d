"""kine for tests: etcd's protocol with SQLite or Postgres behind it, where its program is found.

Elsewhere the asking test is skipped, by name.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.testing.etcd import EtcdCluster, find_program
from clusterspace.testing.hubs import free_port

SQLITE, POSTGRES = "sqlite", "postgres"

_DEBIAN: Final = Path("/usr/lib/postgresql")
_SERVANT: Final = "postgres"
"""Whom Debian's package has for it: Postgres does not run as root."""


@asynccontextmanager
async def kine_for_test(directory: Path, behind: str) -> AsyncGenerator[EtcdCluster]:
    """Run kine, with SQLite or Postgres behind it."""
    program = find_program("kine")
    if program is None:
        pytest.skip("no kine: set KUBEBUILDER_ASSETS to where it is, or have it in PATH")
    port = free_port()
    async with AsyncExitStack() as stack:
        endpoint = f"sqlite://{directory / 'kine.db'}?_journal=WAL&cache=shared"
        if behind == POSTGRES:
            endpoint = await stack.enter_async_context(_postgres(directory))
        words = [
            str(program),
            f"--endpoint={endpoint}",
            f"--listen-address=tcp://127.0.0.1:{port}",
            "--metrics-bind-address=0",
            "--compact-min-retain=0",  # it forgets what it is told to forget
        ]
        await stack.enter_async_context(_running(words, directory / "kine.log"))
        cluster = EtcdCluster(EtcdSettings((f"http://127.0.0.1:{port}",)))
        await cluster.until_ready()
        yield cluster


@asynccontextmanager
async def _postgres(logs: Path) -> AsyncGenerator[str]:
    """Run a Postgres of its own, in memory as far as it goes; return where kine finds it."""
    programs = _find_postgres()
    if programs is None:
        pytest.skip("no Postgres: have initdb in PATH, or Debian's postgresql")
    user = _SERVANT if os.geteuid() == 0 else None
    port = free_port()
    # Not below the test's directory, into which only its own user may look.
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if user is not None:
            shutil.chown(directory, user)
        data = str(directory / "data")
        words = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", _SERVANT, "--no-sync"]
        async with _running(words, logs / "initdb.log", user) as initdb:
            assert await initdb.wait() == 0, (logs / "initdb.log").read_text()
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(directory),
            "port": str(port),
            "fsync": "off",
        }
        words = [str(programs / "postgres"), "-D", data]
        words += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        async with _running(words, logs / "postgres.log", user):
            # kine gives up on a database that is still starting, and Postgres listens early.
            ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-t", "60"]
            while True:
                async with _running(ready, logs / "ready.log") as asked:
                    if await asked.wait() == 0:
                        break
            yield f"postgres://{_SERVANT}@127.0.0.1:{port}/kine?sslmode=disable"
    finally:
        shutil.rmtree(directory)


def _find_postgres() -> Path | None:
    """Return the directory with all programs of Postgres; some may be linked to from PATH."""
    in_path = shutil.which("initdb")
    if in_path is not None:
        return Path(in_path).resolve().parent
    newest_last = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    return newest_last[-1].parent if newest_last else None


@asynccontextmanager
async def _running(
    words: Sequence[str], log: Path, user: str | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, user=user
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
