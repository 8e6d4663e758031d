"""A disk that fails, fills up or hesitates on demand, as a SQLite file layer."""

import threading
from pathlib import Path
from typing import Any

import apsw


class UnreliableDisk(apsw.VFS):
    """The operating system's files with switches; use `disk.name` as the store's `vfs`.

    A context manager, so that the layer is known to SQLite only while a test needs it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")
        self.name = name
        self.syncs = 0
        self.is_held = False
        """Whether somebody waits for `may_sync`."""
        self.fail_at_sync: int | None = None
        self.is_full = False
        self.may_sync = threading.Event()
        self.may_sync.set()

    def xOpen(self, name: Any, flags: list[int]) -> "UnreliableFile":  # noqa: N802 - SQLite's name
        return UnreliableFile(self, name, flags)

    def __enter__(self) -> "UnreliableDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()


class UnreliableFile(apsw.VFSFile):
    def __init__(self, disk: UnreliableDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.is_held = not self._disk.may_sync.is_set()
        self._disk.may_sync.wait(timeout=30)
        self._disk.is_held = False
        self._disk.syncs += 1
        if self._disk.syncs == self._disk.fail_at_sync:
            raise apsw.IOError("injected: the disk failed")
        super().xSync(flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        if self._disk.is_full:
            raise apsw.FullError("injected: no space left on device")
        super().xWrite(data, offset)


def damage_a_record(path: Path) -> tuple[int, str]:
    """Change the value of one record behind the store's back; return its revision and key."""
    connection = apsw.Connection(str(path))
    chosen = "SELECT revision, key FROM log WHERE value NOTNULL LIMIT 1"
    revision, key = connection.execute(chosen).get
    connection.execute("UPDATE log SET value = x'00' WHERE revision = ?", (revision,))
    connection.close()
    return revision, key.decode()
