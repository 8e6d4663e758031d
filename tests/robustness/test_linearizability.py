"""The checker finds what is wrong and lets pass what is not, compared with trying every order."""

from itertools import permutations
from random import Random

import pytest
from tests.robustness.linearizability import (
    Kind,
    Operation,
    Outcome,
    can_follow,
    value_after,
    violations,
)


def read(called: float, answered: float, value: str | None) -> Operation:
    return Operation("k", Kind.READ, called, answered, Outcome.DONE, value)


def create(
    called: float, answered: float, value: str, outcome: Outcome = Outcome.DONE
) -> Operation:
    return Operation("k", Kind.CREATE, called, answered, outcome, value)


def update(
    called: float, answered: float, expected: str, value: str, outcome: Outcome = Outcome.DONE
) -> Operation:
    return Operation("k", Kind.UPDATE, called, answered, outcome, value, expected)


LEGAL = {
    "overlapping reads see old and new": [
        create(0, 1, "a"),
        update(2, 9, "a", "b"),
        read(3, 4, "a"),
        read(5, 6, "b"),
    ],
    "a write without an answer may happen late": [
        create(0, 1, "a"),
        update(2, 3, "a", "b", Outcome.UNKNOWN),
        read(4, 5, "a"),
        read(6, 7, "b"),
    ],
    "or never": [
        create(0, 1, "a"),
        update(2, 3, "a", "b", Outcome.UNKNOWN),
        update(4, 5, "a", "c"),
        read(6, 7, "c"),
    ],
}

ILLEGAL = {
    "a read of what was replaced before": [
        create(0, 1, "a"),
        update(2, 3, "a", "b"),
        read(4, 5, "a"),
    ],
    "an acknowledged write is lost": [create(0, 1, "a"), read(2, 3, None)],
    "reads go back in time": [
        create(0, 1, "a"),
        update(2, 9, "a", "b"),
        read(3, 4, "b"),
        read(5, 6, "a"),
    ],
    "two win the same comparison": [
        create(0, 1, "a"),
        update(2, 5, "a", "b"),
        update(3, 6, "a", "c"),
    ],
    "a refusal for no reason": [
        create(0, 1, "a"),
        update(2, 3, "a", "b", Outcome.REFUSED),
        read(4, 5, "a"),
    ],
    "a write that was refused happened": [
        create(0, 1, "a"),
        create(2, 3, "b", Outcome.REFUSED),
        read(4, 5, "b"),
    ],
}


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
def test_what_one_order_explains_passes(history: list[Operation]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize("history", ILLEGAL.values(), ids=ILLEGAL)
def test_what_no_order_explains_is_found(history: list[Operation]) -> None:
    assert len(violations(history)) == 1


def is_explained(history: list[Operation]) -> bool:
    """Try every order of every choice of those that may never have happened."""
    must = [each for each in history if each.outcome is not Outcome.UNKNOWN]
    may = [each for each in history if each.outcome is Outcome.UNKNOWN]
    for chosen in range(1 << len(may)):
        happened = must + [each for place, each in enumerate(may) if chosen >> place & 1]
        for order in permutations(happened):
            state: str | object | None = None
            for place, each in enumerate(order):
                later = order[place + 1 :]
                if any(
                    other.answered < each.called and other.outcome is not Outcome.UNKNOWN
                    for other in later
                ):
                    break
                if not can_follow(state, each):
                    break
                state = value_after(state, each)
            else:
                return True
    return False


def test_it_agrees_with_trying_every_order() -> None:
    random = Random(20)
    verdicts: set[bool] = set()
    for _ in range(400):
        history: list[Operation] = []
        values: list[str] = []
        for number in range(random.randint(2, 6)):
            called = random.uniform(0, 10)
            answered = called + random.uniform(0.1, 5)
            outcome = random.choice([Outcome.DONE, Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN])
            kind = random.choice(list(Kind))
            seen = random.choice([*values, None])
            if kind is Kind.READ:
                history.append(read(called, answered, seen))
                continue
            expected = random.choice(values) if values else "nothing"
            value = None if kind is Kind.DELETE else f"v{number}"
            values += [] if value is None else [value]
            history.append(Operation("k", kind, called, answered, outcome, value, expected))
        verdict = is_explained(history)
        verdicts.add(verdict)
        assert (violations(history) == []) == verdict, history
    assert verdicts == {True, False}
