"""A process that writes to a store until its disk fails at the given fsync, or it is done.

python -m tests.component.store_child STORE WRITES FAIL_AT_SYNC
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.component.store_disk import UnreliableDisk

from clusterspace.apiserver.store.sqlite import SqliteStore


async def main(path: Path, writes: int, fail_at_sync: int) -> None:
    with UnreliableDisk("child") as disk:
        store = await SqliteStore.open(path, vfs=disk.name)
        await store.put("/warm", b"")  # the first commit into a new log also syncs the log's head
        disk.fail_at_sync = disk.syncs + fail_at_sync
        for number in range(writes):
            written = await store.put(f"/{number % 20}", bytes([number % 256]) * 1000)
            print(written.mod_revision, flush=True)
        os._exit(0)  # without closing, as a crash would


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
