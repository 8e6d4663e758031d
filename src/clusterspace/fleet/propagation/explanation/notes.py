"""What is told of one object, as values: for a screen, or as JSON."""

from dataclasses import dataclass
from enum import Enum


class Standing(Enum):
    """What a cluster has to do with the object."""

    PLACED = "placed"
    REQUIRED = "required"
    WITHDRAWING = "withdrawing"
    NOT_NEEDED = "not needed"
    REJECTED = "rejected"

    @property
    def is_target(self) -> bool:
        """Whether the object is to be there."""
        return self in (Standing.PLACED, Standing.REQUIRED)


@dataclass(frozen=True, slots=True)
class PolicyNote:
    """A policy that means the object, and why it is followed or is not."""

    kind: str
    name: str
    """With its namespace, if it has one."""
    priority: int
    why: str


@dataclass(frozen=True, slots=True)
class ConditionNote:
    """What a condition says; all is empty when nobody has said anything yet."""

    status: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BindingNote:
    """The binding, and how far it is."""

    name: str
    scheduled: ConditionNote
    fully_applied: ConditionNote
    works_written: ConditionNote = ConditionNote()
    """Empty while every cluster has the Work it should have."""


@dataclass(frozen=True, slots=True)
class WorkNote:
    """What is sent to one cluster, and what came back."""

    name: str
    is_applied: bool
    message: str = ""
    """Why it is not applied."""
    is_suspended: bool = False
    health: str = ""
    reported: str = ""
    """The state of the object there, in a few words."""
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """One cluster: whether the object is to be there, why or why not, and how it is."""

    name: str
    standing: Standing
    replicas: int = 0
    why: str = ""
    work: WorkNote | None = None

    @property
    def is_well(self) -> bool:
        """Whether the object is there as it should be."""
        return self.work is not None and self.work.is_applied


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object, followed from the hub to its clusters."""

    kind: str
    namespace: str
    name: str
    summary: str = ""
    policy: PolicyNote | None = None
    other_policies: tuple[PolicyNote, ...] = ()
    binding: BindingNote | None = None
    clusters: tuple[ClusterNote, ...] = ()

    @property
    def targets(self) -> tuple[ClusterNote, ...]:
        """The clusters where the object is to be."""
        return tuple(each for each in self.clusters if each.standing.is_target)
