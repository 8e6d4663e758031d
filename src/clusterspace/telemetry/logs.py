"""JSON and console output, context fields, redaction of secrets.

Everyone logs with `structlog.get_logger(__name__)`: a constant message, and fields for the rest.
What the standard library logs, asyncio above all, takes the same way out.
"""

import logging
from collections.abc import MutableMapping
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars

from clusterspace.telemetry.redaction import redact_fields
from clusterspace.telemetry.request_ids import current_request_id

_FIRST: Final = ("time", "level", "message")


class Format(Enum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


class Level(Enum):
    """From which severity on lines are written."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR


def configure(log_format: Format, level: Level, stream: TextIO) -> None:
    """Send every log line of this process to the stream."""
    as_json = structlog.processors.JSONRenderer(serializer=_to_json)
    for_people = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(),
        event_key="message",
        timestamp_key="time",
        exception_formatter=structlog.dev.plain_traceback,
    )
    structlog.configure(
        processors=[
            merge_contextvars,
            _add_request_id,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            # After tracebacks became text: secrets hide there too.
            _redact_fields,
            as_json if log_format is Format.JSON else for_people,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.value),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        # A cached logger would keep writing where an earlier configuration pointed it.
        cache_logger_on_first_use=False,
    )
    # Once, however often a process is configured: a second handler would write every line twice.
    root = logging.getLogger()
    if not any(isinstance(handler, _ToStructlog) for handler in root.handlers):
        root.addHandler(_ToStructlog())
    root.setLevel(level.value)


def context(**fields: Any) -> AbstractContextManager[None]:
    """Add fields to every line written inside, here and in tasks started here."""
    return bound_contextvars(**fields)


def _add_request_id(
    _logger: object, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    request_id = current_request_id()
    if request_id:
        fields.setdefault("request_id", request_id)
    return fields


def _redact_fields(
    _logger: object, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    redacted = redact_fields(fields)
    first = {key: redacted[key] for key in _FIRST if key in redacted}
    return {**first, **redacted}


def _to_json(fields: dict[str, Any], **_: object) -> str:
    return msgspec.json.encode(fields).decode()


class _ToStructlog(logging.Handler):
    """Passes what the standard library logs on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as a line of ours."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # the arguments do not fit the message
            message = str(record.msg)
        # Libraries make up levels of their own; structlog knows only the standard ones.
        level = max(logging.DEBUG, min(record.levelno // 10 * 10, logging.CRITICAL))
        structlog.get_logger().log(level, message, logger=record.name, exc_info=record.exc_info)
