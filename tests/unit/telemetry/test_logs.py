import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from clusterspace.telemetry import logs
from clusterspace.telemetry.logs import Format, Level, request_id_of


@pytest.fixture(autouse=True)
def leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_opens_with_time_level_and_message(stream: io.StringIO):
    logs.configure(Format.JSON, Level.INFO, stream)

    structlog.get_logger().info("work applied", cluster="m1", changed=2)

    (line,) = lines_of(stream)
    assert list(line)[:3] == ["time", "level", "message"]
    assert line["level"] == "info"
    assert line["message"] == "work applied"
    assert line["cluster"] == "m1"
    assert line["changed"] == 2


def test_lines_below_the_level_are_not_written(stream: io.StringIO):
    logs.configure(Format.JSON, Level.WARNING, stream)

    structlog.get_logger().info("quiet")
    logging.getLogger("lib").info("quiet too")
    structlog.get_logger().warning("loud")

    assert [line["message"] for line in lines_of(stream)] == ["loud"]


def test_a_line_carries_the_request_and_the_context_it_was_written_in(stream: io.StringIO):
    logs.configure(Format.JSON, Level.INFO, stream)
    log = structlog.get_logger()

    with request_id_of("r-1"), logs.context(cluster="m1"):
        log.info("inside")
    log.info("outside")

    inside, outside = lines_of(stream)
    assert (inside["request_id"], inside["cluster"]) == ("r-1", "m1")
    assert not {"request_id", "cluster"} & set(outside)


@pytest.mark.parametrize("log_format", Format)
@pytest.mark.usefixtures("logged_errors")
def test_secrets_reach_no_line_not_even_in_a_traceback(log_format: Format, stream: io.StringIO):
    logs.configure(log_format, Level.INFO, stream)
    log = structlog.get_logger()

    log.info("joined", token="c4n4ry", manifest={"kind": "Secret", "data": {"a": "c4n4ry"}})
    with logs.context(authorization="Bearer c4n4ryc4n4ry"):
        log.info("asked")
    try:
        raise OSError("https://u:c4n4ry@host refused Bearer c4n4ryc4n4ry")
    except OSError:
        log.exception("failed")
        logging.getLogger("lib").exception("failed with password=%s", "c4n4ry")

    assert "c4n4ry" not in stream.getvalue()
    assert stream.getvalue().count("Traceback") == 2


@pytest.mark.usefixtures("logged_errors")
def test_what_the_standard_library_logs_takes_the_same_way_out(stream: io.StringIO):
    logs.configure(Format.JSON, Level.INFO, stream)

    logging.getLogger("asyncio").error("slow callback: %s", "poll")
    logging.getLogger("lib").log(25, "a level of their own")

    first, second = lines_of(stream)
    assert (first["logger"], first["message"]) == ("asyncio", "slow callback: poll")
    assert (second["level"], second["message"]) == ("info", "a level of their own")


def test_a_line_whose_arguments_do_not_fit_is_still_written(stream: io.StringIO):
    logging.getLogger().handlers.clear()  # the test runner's own would raise
    logs.configure(Format.JSON, Level.INFO, stream)

    logging.getLogger("lib").error("%d things", "many")

    assert lines_of(stream)[0]["message"] == "%d things"


def test_configuring_again_moves_every_logger_and_doubles_nothing(stream: io.StringIO):
    log = structlog.get_logger()
    logs.configure(Format.JSON, Level.INFO, io.StringIO())
    log.info("to the first")

    logs.configure(Format.JSON, Level.INFO, stream)
    log.info("ours")
    logging.getLogger("lib").warning("theirs")

    assert [line["message"] for line in lines_of(stream)] == ["ours", "theirs"]


def test_the_console_shows_a_line_a_person_can_read(stream: io.StringIO):
    logs.configure(Format.CONSOLE, Level.INFO, stream)

    structlog.get_logger().info("work applied", cluster="m1")

    shown = stream.getvalue()
    assert "[info" in shown
    assert "work applied" in shown
    assert "cluster=m1" in shown
    assert "\x1b" not in shown


def test_values_that_are_not_json_do_not_break_a_line(stream: io.StringIO):
    logs.configure(Format.JSON, Level.INFO, stream)

    structlog.get_logger().info("odd", number=2**70, half="\ud800", thing={1: {2}}, raw=b"x")

    (line,) = lines_of(stream)
    assert line["thing"] == {"1": [2]}
    assert line["raw"] == "<1 bytes>"
