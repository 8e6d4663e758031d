"""Statements can only read, and end."""

import threading
from pathlib import Path

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.errors import UnusableStatement
from clusterspace.roots.sql import Bounds, Database, NoSuchTable

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


@pytest.fixture
def database() -> Database:
    made = Database(SystemClock(), Bounds(seconds=0.2, rows=100))
    made.create("pods", ("name", "object"))
    made.put("pods", [(1, ("a", '{"x": [1, 2]}')), (2, ("b", '{"x": []}'))])
    return made


def test_rows_are_written_replaced_and_deleted_by_their_numbers(database: Database):
    database.put("pods", [(1, ("z", "{}")), (3, ("c", "{}"))])
    database.remove("pods", [2])

    found = database.select("select name from pods order by name")

    assert found.columns == ("name",)
    assert found.rows == (("c",), ("z",))


def test_a_statement_without_rows_has_its_columns_all_the_same(database: Database):
    found = database.select("select name as n, 1 as one from pods where name = 'q'")

    assert (found.columns, found.rows) == (("n", "one"), ())


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("select name, object->>'$.x[1]' from pods order by 1", [("a", 2), ("b", None)]),
        ("select value from pods, json_each(pods.object, '$.x')", [(1,), (2,)]),
        ("with p as (select * from pods) select count(*) from p", [(2,)]),
        ("select count(*) from pods join pods as q using (name)", [(2,)]),
        ("values ('x')", [("x",)]),
        ("select max(i) from (with recursive n(i) as (select 1 union select i+1 from n limit 9) "
         "select i from n)", [(9,)]),
    ],
)  # fmt: skip
def test_what_sql_can_say_can_be_asked(database: Database, statement: str, rows: list[object]):
    assert list(database.select(statement).rows) == rows


@pytest.mark.parametrize(
    "statement",
    [
        "attach '{place}' as x",
        "vacuum into '{place}'",
        "vacuum",
        "reindex",
        "analyze",
        "insert into pods values ('x', '')",
        "with p as (select 1) insert into pods select 'x', ''",
        "update pods set name = 'x' returning name",
        "delete from pods",
        "replace into pods values ('x', '')",
        "drop table pods",
        "create table x (a)",
        "create temp table x as select * from pods",
        "create temp view x as select * from pods",
        "create virtual table x using fts5(a)",
        "create trigger t after insert on pods begin select 1; end",
        "alter table pods rename to x",
        "pragma writable_schema = 1",
        "pragma hard_heap_limit = 1",
        "select * from pragma_table_list",
        "select * from pragma_hard_heap_limit(1)",
        "select * from sqlite_master",
        "select * from sqlite_schema",
        "select * from sqlite_dbpage",
        "select * from dbstat",
        "select load_extension('{place}')",
        "select fts3_tokenizer('simple', x'00')",
        "begin",
        "savepoint x",
        "rollback",
        "detach main",
        "select name from pods; delete from pods",
        "select name from pods; select 1",
        "select name from pods where name = ?",
        "select name from pods where name = :name",
        "",
        "-- nothing",
        "select",
        "select nonsense from pods",
        "explain select writefile('{place}', 'x')",
        "select readfile('/etc/passwd')",
        "select edit('x')",
    ],
)
def test_nothing_but_reading_is_possible(database: Database, statement: str, tmp_path: Path):
    with pytest.raises(UnusableStatement):
        database.select(statement.replace("{place}", str(tmp_path / "written")))

    assert database.select("select name from pods").rows == (("a",), ("b",))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "select count(*) from pods a, pods b, pods c, pods d, pods e, pods f, pods g, pods h, "
        "pods i, pods j, pods k, pods l, pods m, pods n, pods o, pods p, pods q, pods r, pods s, "
        "pods t, pods u, pods v, pods w, pods x, pods y, pods z, pods aa, pods bb, pods cc",
        f"select * from pods where name = ({ENDLESS})",
    ],
)
def test_a_statement_without_an_end_is_ended(database: Database, statement: str):
    with pytest.raises(UnusableStatement, match=r"ended after 0\.2s"):
        database.select(statement)

    assert len(database.select("select name from pods").rows) == 2


def test_a_statement_is_ended_when_nobody_waits_for_it_any_more():
    database = Database(SystemClock(), Bounds(seconds=60))
    threading.Timer(0.05, database.interrupt).start()

    with pytest.raises(UnusableStatement):
        database.select(ENDLESS)


@pytest.mark.parametrize(
    "statement",
    [
        "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n",
        "select zeroblob(1000000000)",
        "select hex(zeroblob(12000000))",
        "select printf('%.*c', 100000000, 'x')",
        f"select '{'x' * 70_000}'",
        "select 'aaaa' like '" + "%a" * 200 + "'",
    ],
)
def test_what_would_fill_the_memory_is_refused(database: Database, statement: str):
    with pytest.raises(UnusableStatement):
        database.select(statement)


def test_tables_have_a_bound():
    database = Database(SystemClock(), Bounds(table_bytes=1024 * 1024))
    database.create("pods", ("object",))

    with pytest.raises(UnusableStatement, match="more than 1 MiB"):
        database.put("pods", ((at, ("x" * 10_000,)) for at in range(1000)))


def test_a_table_that_is_not_there_is_named(database: Database):
    for statement, table in (
        ("select * from nodes", "nodes"),
        ("select * from pods, main.nodes", "nodes"),
        ('select * from "deployments.apps"', "deployments.apps"),
        ("select name from pods where name in (select name from secrets)", "secrets"),
    ):
        with pytest.raises(NoSuchTable) as missing:
            database.check(statement)

        assert missing.value.table == table


def test_what_a_statement_reads_is_known_before_it_runs(database: Database):
    shape = database.check("select p.name as n from Pods p, json_each(p.object, '$.x') order by 1")

    assert shape.columns == ("n",)
    assert shape.read["pods"] == {"name", "object"}
    assert database.check("select count(*) from pods").read["pods"] == {""}


def test_a_wrong_column_is_answered_with_those_there_are(database: Database):
    with pytest.raises(UnusableStatement, match="pods has name, object"):
        database.select("select phase from pods")


def test_names_of_tables_are_names_whatever_they_hold():
    database = Database(SystemClock())
    database.create('x" (a); drop table pods; --', ('a"b',))

    found = database.select('select * from "x"" (a); drop table pods; --"')

    assert found.columns == ('a"b',)
