"""A name for each request, carried along so that every log line and every hop repeats it."""

import re
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

HEADER: Final = "Audit-ID"
"""The header Kubernetes carries it in, both ways."""

# Whatever comes from outside ends up in logs: no spaces, no quotes, and not a whole book.
_ACCEPTABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

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
