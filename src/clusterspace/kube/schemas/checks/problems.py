"""Problem: something wrong at a place not yet known in full, until it has travelled to the root.

Checks return problems relative to the value they looked at. Whoever holds that value adds its own
step, so paths are built for what is wrong and never for what is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clusterspace.errors import Cause
from clusterspace.kube.field_paths import (
    NO_PATH,
    Step,
    Steps,
    dotted_text,
    field_text,
)


@dataclass(frozen=True, slots=True)
class Where:
    """A place with its path known in full."""

    root: str
    """What the caller said the value is called; empty for a whole object."""
    steps: Steps

    @property
    def name(self) -> str:
        """The path below the root, as schema messages repeat it."""
        return dotted_text(self.steps)

    @property
    def field(self) -> str:
        """The path that the cause is filed under."""
        return dotted_text(self.steps, self.root) or NO_PATH

    @property
    def element(self) -> str:
        """The path in the form used for elements of sets and maps: free keys in brackets."""
        return field_text(self.steps, self.root)

    @property
    def whole(self) -> str:
        """The path of the value as a whole: what Kubernetes files composite failures under."""
        return self.root or NO_PATH


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, once `tell` knows where."""

    tell: Callable[[Where], Cause]
    steps: Steps = ()
    is_duplicate: bool = False

    def below(self, step: Step) -> "Problem":
        """Return the problem as seen from one level up."""
        return Problem(self.tell, (step, *self.steps), self.is_duplicate)


Found: TypeAlias = Sequence[Problem]
Check: TypeAlias = Callable[[Any], Found]
"""Says what is wrong with a value."""

NONE: Final[Found] = ()


def found_below(step: Step, found: Found) -> list[Problem]:
    """Return all problems as seen from one level up."""
    return [problem.below(step) for problem in found]
