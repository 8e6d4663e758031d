"""What can be wrong with an expression: it does not compile, or it has no value this time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something wrong at a place of an expression; `at` counts characters from zero."""

    at: int
    message: str


class CompileFailed(Exception):
    """The expression is not one, or cannot be about these variables."""

    def __init__(self, text: str, faults: list[Fault]) -> None:
        self.faults = sorted(set(faults))
        super().__init__("\n".join(_shown(text, fault) for fault in self.faults))


class EvaluationFailed(Exception):
    """The expression has no value for these variables: a missing key, a division by zero."""


class BudgetExceeded(Exception):
    """Finding the value takes more steps than anybody may take."""


def no_overload() -> EvaluationFailed:
    """Return the error of a call with values its function does not take."""
    return EvaluationFailed("no such overload")


def _shown(text: str, fault: Fault) -> str:
    """Return the fault with the line it is in and a mark below the place."""
    before = text[: fault.at]
    line_number = before.count("\n") + 1
    column = fault.at - (before.rfind("\n") + 1)
    line = text.split("\n")[line_number - 1]
    place = f"<input>:{line_number}:{column + 1}"
    return f"ERROR: {place}: {fault.message}\n | {line}\n | {'.' * column}^"
