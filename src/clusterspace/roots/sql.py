"""SQL that can only read: tables in memory, one SELECT at a time, within bounds.

    Database ──create, put, remove──> tables ──check, select──> rows

Whoever writes the statement is not trusted with more than the rows: no file is opened, nothing is
attached, written or loaded, and a statement without an end is ended. SQLite calls an authorizer for
nearly all that a statement does, but for `VACUUM INTO` and `REINDEX` it does not. So a statement
has to be known as a SELECT, not merely to do nothing that is forbidden.
"""

import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import apsw
import apsw.ext

from clusterspace.aio.clocks import Clock
from clusterspace.errors import UnusableStatement

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]
_Authorize: TypeAlias = Callable[..., int]

_ACTIONS: Final = frozenset(
    {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
)
_TABLE_FUNCTIONS: Final = frozenset({"json_each", "json_tree"})
_REFUSED_FUNCTIONS: Final = frozenset(
    {"load_extension", "fts3_tokenizer", "fts5", "fts5_source_id", "rtreecheck"}
)
_NO_TABLE: Final = re.compile(r"no such table: (?:main\.)?(.+)")
_STEPS: Final = 10_000
"""Between two looks at the clock: about a tenth of a millisecond."""
_PAGE_BYTES: Final = 4096
_MIB: Final = 1024 * 1024
_LONGEST_STATEMENT: Final = 64 * 1024
_LONGEST_VALUE: Final = 16 * _MIB
"""Of a string or a row: ten times the largest object a Kubernetes API takes."""


class NoSuchTable(Exception):
    """A statement names a table that nobody has made yet."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one statement may take."""

    seconds: float = 30.0
    table_bytes: int = 1024 * _MIB
    rows: int = 100_000
    row_bytes: int = 256 * _MIB
    """For all rows of a result together."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a statement would read and show."""

    columns: tuple[str, ...]
    read: Mapping[str, Collection[str]]
    """The columns that it reads of each table, whose name is in lower case here."""


@dataclass(frozen=True, slots=True)
class Result:
    """The rows that a statement has found."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


class Database:
    """Tables in memory. One thread at a time; `interrupt` may be called by any."""

    def __init__(self, clock: Clock, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._connection = apsw.Connection(":memory:")
        self._columns: dict[str, tuple[str, ...]] = {}
        self._is_ended = False
        connection = self._connection
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_STATEMENT)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 256)
        connection.execute(f"pragma page_size={_PAGE_BYTES}")
        connection.execute(f"pragma max_page_count={self.bounds.table_bytes // _PAGE_BYTES}")

    def close(self) -> None:
        """Forget all tables."""
        self._connection.close()

    def interrupt(self) -> None:
        """End the statement that another thread runs or is about to run, and all after it."""
        self._is_ended = True

    # -- the tables, written by us ------------------------------------------------------------

    def create(self, table: str, columns: Sequence[str]) -> None:
        """Make an empty table. Its name is as a statement wrote it, and may hold anything."""
        self._columns[table.lower()] = tuple(columns)
        declared = ", ".join(map(_quoted, columns))
        self._connection.execute(f"create table {_quoted(table)} ({declared})")

    def put(self, table: str, rows: Iterable[tuple[int, Row]]) -> None:
        """Write rows, each by its number: one that is there already is replaced."""
        marks = ", ".join("?" * (1 + len(self._columns[table.lower()])))
        named = ", ".join(map(_quoted, ("rowid", *self._columns[table.lower()])))
        statement = f"insert or replace into {_quoted(table)} ({named}) values ({marks})"  # noqa: S608
        try:
            self._connection.execute("begin")
            self._connection.executemany(statement, ((at, *row) for at, row in rows))
            self._connection.execute("commit")
        except (apsw.FullError, apsw.TooBigError) as error:
            most = self.bounds.table_bytes // _MIB
            raise UnusableStatement(
                f"the objects take more than {most} MiB; select fewer with -n or -l"
            ) from error

    def remove(self, table: str, numbers: Iterable[int]) -> None:
        """Delete rows by their numbers."""
        statement = f"delete from {_quoted(table)} where rowid = ?"  # noqa: S608
        with self._connection:
            self._connection.executemany(statement, ((each,) for each in numbers))

    # -- statements, written by others --------------------------------------------------------

    def check(self, statement: str) -> Shape:
        """Return what a statement would read and show, without running it.

        Raises NoSuchTable for a table that is yet to be made, else UnusableStatement.
        """
        is_select = False
        read: dict[str, set[str]] = {}

        def authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
            nonlocal is_select
            is_select |= action == apsw.SQLITE_SELECT
            if action == apsw.SQLITE_READ:
                read.setdefault((first or "").lower(), set()).add(second or "")
            return self._authorize(action, first, second)

        with self._reading(authorize):
            found = apsw.ext.query_info(self._connection, statement)
        if not (is_select and found.is_readonly):
            raise UnusableStatement("only SELECT is served; nothing is ever written")
        if found.query_remaining:
            raise UnusableStatement("this is more than one statement; ask one thing at a time")
        if found.bindings_count:
            raise UnusableStatement("the statement has parameters (? or :name); write the values")
        return Shape(tuple(name for name, _ in found.description), read)

    def select(self, statement: str) -> Result:
        """Return all rows of a statement; UnusableStatement when it has to be ended."""
        columns = self.check(statement).columns
        deadline = self._clock.monotonic() + self.bounds.seconds
        rows: list[Row] = []
        size = 0
        with self._reading(self._authorize):
            self._connection.set_progress_handler(
                lambda: self._is_ended or self._clock.monotonic() >= deadline, _STEPS
            )
            for row in self._connection.execute(statement):
                rows.append(row)
                size += sum(len(each) for each in row if isinstance(each, str | bytes))
                if len(rows) > self.bounds.rows or size > self.bounds.row_bytes:
                    raise UnusableStatement(
                        f"the result has more than {self.bounds.rows} rows, or is larger than "
                        f"{self.bounds.row_bytes // _MIB} MiB; add LIMIT or WHERE"
                    )
        return Result(columns, tuple(rows))

    @contextmanager
    def _reading(self, authorize: _Authorize) -> Generator[None]:
        """Look at or run a statement of others; errors come out as ours."""
        connection = self._connection
        connection.authorizer = authorize
        try:
            yield
        except (apsw.Error, apsw.ExtensionLoadingError) as error:
            raise self._translated(error) from error
        finally:
            connection.set_progress_handler(None)
            connection.authorizer = None

    def _authorize(self, action: int, first: str | None, second: str | None, *_: Any) -> int:
        """Say whether a statement may do something, as SQLite asks for it."""
        allowed = action in _ACTIONS
        if action == apsw.SQLITE_READ:
            # No column is read to count rows: of these, or of what the statement itself names.
            table = (first or "").lower()
            allowed = table in self._columns or table in _TABLE_FUNCTIONS or not second
        if action == apsw.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in _REFUSED_FUNCTIONS
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    def _translated(self, error: Exception) -> Exception:
        """Return what SQLite says in a sentence with what helps."""
        said = str(error)
        missing = _NO_TABLE.fullmatch(said)
        if missing and not missing[1].lower().startswith("sqlite_"):
            return NoSuchTable(missing[1])
        if isinstance(error, apsw.InterruptError):
            return UnusableStatement(
                f"the statement was ended after {self.bounds.seconds:g}s; select fewer objects "
                "with -n or -l, or raise --timeout"
            )
        if isinstance(error, apsw.AuthError):
            return UnusableStatement(f"only SELECT of objects is served ({said})")
        if said.startswith("no such column"):
            known = "; ".join(
                f"{table} has {', '.join(columns)}" for table, columns in self._columns.items()
            )
            return UnusableStatement(f"{said}: {known}" if known else said)
        return UnusableStatement(said)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
