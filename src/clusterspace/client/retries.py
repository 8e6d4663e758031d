"""Whether to ask again, and when: a pure decision.

                                  reads        writes
never sent                        again        again
an address that is not allowed    no           no
broke before the answer           again        no: it may have happened
429 with Retry-After              again        again: it was refused unread
5xx with Retry-After              again        no
anything else                     no           no
"""

from typing import Final

from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.errors import AddressNotAllowed, ClusterError, ClusterUnreachable

MOST_ATTEMPTS: Final = 5
LONGEST_WAIT: Final = 30.0
"""A server that asks for more patience than this gets its refusal passed on."""


def retry_wait(ask: ApiRequest, outcome: Answer | ClusterError, backoff: float) -> float | None:
    """Return how many seconds to wait before asking again, or None to leave it at that."""
    if isinstance(outcome, Answer):
        return _after_answer(ask, outcome, backoff)
    if isinstance(outcome, AddressNotAllowed):
        return None
    if isinstance(outcome, ClusterUnreachable) and (ask.is_safe or not outcome.was_sent):
        return backoff
    return None


def _after_answer(ask: ApiRequest, answer: Answer, backoff: float) -> float | None:
    wait = answer.retry_after
    if wait is None or wait > LONGEST_WAIT:
        return None
    if answer.status == 429 or (ask.is_safe and answer.status >= 500):
        # Never sooner than asked, and not all at the same moment.
        return wait + min(backoff, 1.0)
    return None
