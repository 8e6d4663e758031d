"""Log lines, JSON or console: with the request they belong to, and without secrets.

Everyone logs with `structlog.get_logger(__name__)`: a constant message, and fields for the rest.
What the standard library logs, asyncio above all, takes the same way out.
"""

import logging
import re
import uuid
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TextIO, TypeAlias, cast

import msgspec
import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars

REQUEST_ID_HEADER: Final = "Audit-ID"
"""The header Kubernetes carries the name of a request in, both ways."""

# Whatever comes from outside ends up in logs: no spaces, no quotes, and not a whole book.
_ACCEPTABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

# Copied into every task that is started inside: a fan-out repeats the name to all members.
_current: ContextVar[str] = ContextVar("request_id", default="")


def make_request_id() -> str:
    """Return a name nobody has used."""
    return str(uuid.uuid4())


def accept_request_id(offered: str | None) -> str:
    """Return the name the caller gave the request if it is fit for a log, else a new one."""
    if offered is not None and _ACCEPTABLE.fullmatch(offered):
        return offered
    return make_request_id()


def current_request_id() -> str:
    """Return the name of the request being served, or an empty string."""
    return _current.get()


@contextmanager
def request_id_of(request_id: str) -> Generator[str]:
    """Make this the current request for everything called, and every task started, inside."""
    before = _current.set(request_id)
    try:
        yield request_id
    finally:
        _current.reset(before)


# -- secrets, kept out by the name of a field and by how a text looks --------------------------

# The second line of defence. The first is not to log secrets; this one is for the object in a
# debug line, the header in an error and the URL in a traceback.


REDACTED: Final = "[redacted]"

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"
"""What any JSON encoder can write."""

# Field names are compared in lower case without separators: X-Auth-Token is xauthtoken.
_SECRET_NAMES: Final = frozenset(
    {
        "apikey",
        "authorization",
        "certificatekey",
        "clientkeydata",
        "cookie",
        "credentials",
        "kubeconfig",
        "lastappliedconfiguration",
        "passphrase",
        "privatekey",
        "proxyauthorization",
        "setcookie",
        "stringdata",
        "tlskey",
        "xauthtoken",
    }
)
_SECRET_ENDINGS: Final = ("password", "passwd", "token", "secret", "privatekey", "kubeconfig")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SECRET_FIELDS_OF_SECRETS: Final = ("data", "stringData")

_LONGEST_TEXT: Final = 16_384
_DEEPEST: Final = 12
_LARGEST_INTEGER: Final = 2**63 - 1

_WORDS: Final = r"[\w-]*(?:password|passwd|token|secret|api[_-]?key)"
_WORD_MARKS: Final = ("passw", "token", "secret", "key")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one kind of secret looks in a text, and a word in lower case without which it cannot."""

    marks: tuple[str, ...]
    looks: re.Pattern[str]
    becomes: str = REDACTED


_RULES: Final = (
    _Rule(
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
    ),
    _Rule(
        ("bearer", "basic"),
        re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE),
        rf"\1 {REDACTED}",
    ),
    _Rule(
        ("bearer.authorization",),  # the sub-protocol browsers and some clients carry it in
        re.compile(r"(base64url\.bearer\.authorization\.k8s\.io\.)[\w.=-]+"),
        rf"\1{REDACTED}",
    ),
    _Rule(("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?")),  # a JWT
    _Rule(
        (),  # a bootstrap token: the part before the dot is its public name
        re.compile(r"\b([a-z0-9]{6})\.[a-z0-9]{16}\b"),
        rf"\1.{REDACTED}",
    ),
    _Rule(
        ("@",),  # user and password in a URL
        re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s@?#]+@", re.IGNORECASE),
        rf"\1{REDACTED}@",
    ),
    _Rule(
        _WORD_MARKS,
        re.compile(rf"(?<![\w-])({_WORDS}=)[^\s&\"',;]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    _Rule(
        (*_WORD_MARKS, "authorization", "cookie"),
        re.compile(
            rf"""(["'](?:{_WORDS}|authorization|cookie)["']\s*:\s*["'])[^"']+""", re.IGNORECASE
        ),
        rf"\1{REDACTED}",
    ),
    _Rule(
        _WORD_MARKS,  # a line of YAML
        re.compile(rf"^([ \t]*(?:- )?{_WORDS}:[ \t]+)\S+", re.IGNORECASE | re.MULTILINE),
        rf"\1{REDACTED}",
    ),
    _Rule(
        ("authorization", "cookie"),
        re.compile(r"\b((?:authorization|(?:set-)?cookie)\s*[:=]\s*)[^\r\n]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
)

# Documents as text, in which any line may hold a secret.
_SECRET_DOCUMENT = re.compile(
    r"""client-key-data["']?\s*:|\bkind["']?\s*:\s*["']?(?:Secret|SecretList|Config)\b"""
)

# Most texts hold no secret. One search for all marks at once tells, at a tenth of the cost.
_MARKS: Final = {"kind", *(mark for rule in _RULES for mark in rule.marks)}
_ANY_MARK = re.compile("|".join(re.escape(mark) for mark in sorted(_MARKS)))
_SHORTEST_UNMARKED: Final = 23
"""The length of the one secret without a mark, the bootstrap token."""


def redact(value: object, *, depth: int = 0) -> Plain:
    """Return a copy without secrets, of plain values only: any JSON encoder can write it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_INTEGER else f"{value:#x}"
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return redact_fields(cast("Mapping[Any, object]", value), depth=depth)
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth=depth + 1) for item in cast("list[object]", value)]
    return redact_text(value if isinstance(value, str) else str(value))


def redact_fields(fields: Mapping[Any, object], *, depth: int = 0) -> dict[str, Plain]:
    """Return a copy of the fields without secrets."""
    is_secret = fields.get("kind") == "Secret"
    items_are_secrets = fields.get("kind") == "SecretList"
    redacted: dict[str, Plain] = {}
    for key, value in fields.items():
        name = _shown_name(str(key))
        if _is_secret_name(str(key)) or (is_secret and key in _SECRET_FIELDS_OF_SECRETS):
            redacted[name] = REDACTED if value else None
        elif items_are_secrets and key == "items":
            redacted[name] = REDACTED
        else:
            redacted[name] = redact(value, depth=depth + 1)
    return redacted


def redact_text(text: str) -> str:
    """Return the text without what looks like a secret, and not too long to read."""
    shortened = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    is_marked = _ANY_MARK.search(shortened.lower()) is not None
    if is_marked and _SECRET_DOCUMENT.search(shortened):
        return REDACTED
    if is_marked or (len(shortened) >= _SHORTEST_UNMARKED and "." in shortened):
        for rule in _RULES:
            shortened = rule.looks.sub(rule.becomes, shortened)
    # Half of a surrogate pair is a str that no encoder can write.
    return shortened if shortened.isascii() else shortened.encode("utf-8", "replace").decode()


@lru_cache(maxsize=1024)
def _shown_name(name: str) -> str:
    return redact_text(name)


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    if name == _LAST_APPLIED:
        return True
    plain = name.lower().replace("-", "").replace("_", "").replace(".", "")
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_ENDINGS)


# -- the lines ---------------------------------------------------------------------------------


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
