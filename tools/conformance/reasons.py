"""Why specs of Karmada's suite do not pass here, each said by a person who looked.

A spec that fails without a reason here is a finding: the tool names it and writes no page. A reason
is about the place the suite runs in (`kind`, `images`, `containers`) or about us (`here`); there
are no others.
"""

import re
from dataclasses import dataclass
from typing import Final

from tools.conformance.suites import Result, Spec

KIND: Final = "kind"
"""The spec makes a cluster with kind, which needs Docker."""
IMAGES: Final = "images"
"""The spec asks a program of Karmada's that runs from an image in its host cluster."""
CONTAINERS: Final = "containers"
"""The spec needs containers that run from their images, with a network between clusters."""
HERE: Final = "here"
"""Clusterspace does otherwise."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why specs whose file, name and failure fit do not pass."""

    about: str
    text: str
    file: str
    name: str = ""
    failure: str = ""
    is_run: bool = True
    """Whether it is worth the minutes that it takes to fail."""

    def fits(self, spec: Spec, why: str = "") -> bool:
        """Whether this is the reason of such a failure."""
        return (
            spec.file.endswith(self.file)
            and re.search(self.name, spec.name) is not None
            and re.search(self.failure, why) is not None
        )


REASONS: Final = (
    Reason(KIND, "it makes a cluster with kind", "_test.go", failure="docker info"),
    Reason(
        KIND,
        "the spec before it in its container makes a cluster with kind",
        "karmadactl_test.go",
        name="register testing",
    ),
    Reason(
        IMAGES,
        "it reads metrics of pods of Karmada's components in the host cluster",
        "metrics_test.go",
    ),
    Reason(
        CONTAINERS,
        "it sends requests from a pod of one cluster to a pod of another",
        "mcs_test.go",
        name="Connectivity testing",
    ),
)


WEBHOOK: Final = Reason(
    IMAGES,
    "it needs Karmada's example of an interpreter webhook, which no variable named",
    "resourceinterpreter_test.go",
    name="^Resource interpreter webhook",
    is_run=False,
)


def reason_of(result: Result, reasons: tuple[Reason, ...] = REASONS) -> Reason | None:
    """Return why a spec did not pass; None when nobody has said so."""
    return next((each for each in reasons if each.fits(result.spec, result.why)), None)
