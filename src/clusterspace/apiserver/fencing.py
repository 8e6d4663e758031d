"""Writes of a leader that leads no longer are refused: compared with the Lease as they are stored.

The header (apis/fencing.py) is read when a request begins, and held against the Lease when all else
is done and its object goes to the store: reading a body, admission and a turn for a large object
may take long, and the Lease may change hands meanwhile.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from clusterspace.apis.fencing import CHECKED_HEADER, LEADER_HEADER, Leadership, read_leadership
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.state import HubState
from clusterspace.errors import Conflict

_LEASES: Final = ("coordination.k8s.io", "v1", "leases")
_SAFE: Final = frozenset({"get", "list", "watch"})

_leadership: Final[ContextVar[Leadership | None]] = ContextVar("leadership", default=None)


@contextmanager
def fenced(context: RequestContext) -> Generator[None]:
    """Tie the writes of one request to the leadership it names, if it names one."""
    header = context.header(LEADER_HEADER.lower())
    if not header or context.info.verb in _SAFE:
        yield
        return
    leadership = read_leadership(header)
    context.answer_headers = [(CHECKED_HEADER, str(leadership.epoch))]
    token = _leadership.set(leadership)
    try:
        yield
    finally:
        _leadership.reset(token)


async def require_leadership(hub: HubState) -> None:
    """Refuse to store what a deposed leader sent; to be called right before the store is."""
    leadership = _leadership.get()
    if leadership is None:
        return
    served = hub.catalog.find(*_LEASES)
    entry = served and await hub.store.get(served.key(leadership.namespace, leadership.name))
    lease = None if served is None or not entry else forms.decode_stored(entry, served.form)
    if not leadership.holds(lease):
        raise Conflict(
            f"the lease {leadership.namespace}/{leadership.name} has changed hands since epoch"
            f" {leadership.epoch}: whoever sent this leads no longer"
        )
