"""docs/conformance.md: every spec with its result, what was not run, and why."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from tools.conformance.suites import ROOT, Result, Spec
from tools.reference.markdown import cell, table

PAGE: Final = ROOT / "docs" / "conformance.md"

_INTRODUCTION: Final = """\
# Conformance

Kubernetes' and Karmada's own end-to-end suites, run unmodified against what we serve. `make
conformance` writes this page; what is not run says why. The suites are built from their projects'
trees and are no part of this repository: [tools/conformance](../tools/conformance/__init__.py) says
which variables name them.
"""


@dataclass(slots=True)
class Column:
    """One suite on one target: its results, or why there are none."""

    heading: str
    results: Sequence[Result] = ()
    missing: str = ""

    @property
    def score(self) -> str:
        """How many passed, of how many."""
        if self.missing:
            return f"not run: {self.missing}"
        return f"{sum(each.passed for each in self.results)} of {len(self.results)}"


@dataclass(slots=True)
class Report:
    """What one call of `make conformance` has found out."""

    kubernetes: list[Column] = field(default_factory=list[Column])
    karmada: list[Column] = field(default_factory=list[Column])
    not_run: Sequence[Spec] = ()
    """Conformance specs of Kubernetes that need a kubelet."""

    def text(self) -> str:
        """Return the page."""
        parts = [_INTRODUCTION, _scores((*self.kubernetes, *self.karmada))]
        parts += ["## Kubernetes", _KUBERNETES, *_results(self.kubernetes)]
        if self.not_run:
            heading = f"### Not run: {len(self.not_run)} specs that need a kubelet"
            parts += [heading, _counts(self.not_run)]
        parts += ["## Karmada", _KARMADA, *_results(self.karmada)]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


_KUBERNETES: Final = """\
Conformance specs that can pass where no kubelet runs: on the hub beside a real
kube-controller-manager and two Node objects that nobody looks after, and on a simulated member."""

_KARMADA: Final = """\
A hub, two simulated members joined by Push and one registered by Pull; a fourth stands in for the
host cluster. Deletions are approved beforehand."""


def _scores(columns: Iterable[Column]) -> str:
    return table(("suite", "passed"), [(each.heading, each.score) for each in columns])


def _results(columns: Sequence[Column]) -> list[str]:
    """Return the table of all specs, and the reasons of those that failed."""
    found: dict[Spec, dict[str, Result]] = {}
    shown = [each for each in columns if not each.missing]
    for column in shown:
        for result in column.results:
            found.setdefault(result.spec, {})[column.heading] = result
    if not found:
        return []
    rows = [
        (cell(_plain(spec)), *(_word(results.get(each.heading)) for each in shown))
        for spec, results in sorted(found.items())
    ]
    failures = [
        f"- {each.heading}: {_plain(result.spec)}: `{result.why.replace('`', '')}`"
        for each in shown
        for result in sorted(each.results, key=lambda result: result.spec)
        if not result.passed
    ]
    parts = [table(("spec", *(each.heading for each in shown)), rows)]
    return [*parts, "### What failed", "\n".join(failures)] if failures else parts


def _word(result: Result | None) -> str:
    return "not run" if result is None else "passed" if result.passed else "**failed**"


def _plain(spec: Spec) -> str:
    """Return the name of a spec without the labels that are the same for all."""
    return re.sub(r"\[(sig-[a-z-]+|Conformance|NodeConformance)\] ?", "", spec.name).strip()


def _counts(specs: Iterable[Spec]) -> str:
    by_file = groupby(sorted(specs), key=lambda spec: spec.file)
    return table(("file", "specs"), [(f"`{file}`", str(len(list(each)))) for file, each in by_file])


def write(report: Report, path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(report.text())
