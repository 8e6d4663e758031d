"""Whether a recorded history could have happened one operation at a time, key by key.

A key is a register: absent, or one of the values that were written, each of which is written once.
An operation has the time of its call and that of its answer; one without an answer may take effect
at any time after its call, or never. The history is linearizable when there is an order of all
operations in which each takes effect between its call and its answer, and every answer is true.

The search is Wing and Gong's with Lowe's memory: take any operation that nothing else precedes, try
it, and never look twice at the same set of operations done with the same value left behind.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import inf


class Kind(Enum):
    """What an operation does to its key."""

    READ = "read"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Outcome(Enum):
    """What its caller was told."""

    DONE = "done"
    REFUSED = "refused"
    """It was compared, and the key was not as expected."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call and its answer, as a client saw them."""

    key: str
    kind: Kind
    called: float
    answered: float
    outcome: Outcome
    value: str | None = None
    """What was written, or read; None for absent."""
    expected: str | None = None
    """What an update or a delete was to replace."""


def can_follow(state: str | None, operation: Operation) -> bool:
    """Whether an operation with this outcome can take effect while the key has this value."""
    if operation.outcome is Outcome.UNKNOWN and operation.kind is Kind.READ:
        return True
    if operation.kind is Kind.READ:
        return state == operation.value
    expected = None if operation.kind is Kind.CREATE else operation.expected
    return (state == expected) == (operation.outcome is not Outcome.REFUSED)


def value_after(state: str | None, operation: Operation) -> str | None:
    """Return the value that an operation leaves behind."""
    if operation.kind is Kind.READ or operation.outcome is Outcome.REFUSED:
        return state
    return None if operation.kind is Kind.DELETE else operation.value


def violations(history: Iterable[Operation]) -> list[str]:
    """Return the keys whose operations no order explains, each with the history up to there."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    found: list[str] = []
    for key, operations in sorted(by_key.items()):
        stuck = _first_stuck(operations)
        if stuck is not None:
            found.append(f"{key}: nothing explains {stuck}")
    return found


def _first_stuck(history: list[Operation]) -> Operation | None:
    """Search an order; return the operation that the furthest attempt could not get behind."""
    # What was not answered and has no effect on anybody may as well not have been.
    operations = sorted(
        (each for each in history if each.kind is not Kind.READ or each.outcome is Outcome.DONE),
        key=lambda each: each.called,
    )
    count = len(operations)
    ends = [inf if each.outcome is Outcome.UNKNOWN else each.answered for each in operations]
    must = sum(1 << place for place, end in enumerate(ends) if end < inf)
    seen: set[tuple[int, str | None]] = set()
    furthest, best = 0, -1
    stack: list[tuple[int, str | None]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & must == must:
            return None
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if (done & must).bit_count() > best:
            furthest, best = done, (done & must).bit_count()
        # Whatever was called before the first answer that is still owed may be next.
        first = next(place for place in range(count) if not done >> place & 1)
        horizon = min(
            (ends[place] for place in range(first, count) if not done >> place & 1), default=inf
        )
        for place in range(first, count):
            if operations[place].called > horizon:
                break
            if done >> place & 1:
                continue
            if can_follow(state, operations[place]):
                stack.append((done | 1 << place, value_after(state, operations[place])))
    owed = [place for place in range(count) if must >> place & 1 and not furthest >> place & 1]
    return operations[min(owed, key=lambda place: ends[place])]
