"""docs/conformance.md: every spec with its result, what was not run, and why.

And the section about Karmada's suite in docs/karmada-compatibility.md: how many specs pass, by
file, and each that does not, with its reason.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from tools.conformance.reasons import CONTAINERS, HERE, IMAGES, KIND, WEBHOOK, Reason, reason_of
from tools.conformance.suites import ROOT, Result, Spec
from tools.reference.markdown import cell, table

PAGE: Final = ROOT / "docs" / "conformance.md"
COMPATIBILITY: Final = ROOT / "docs" / "karmada-compatibility.md"
_SECTION: Final = "### Karmada's own suite"
_KARMADA_HEADING: Final = "## Karmada"

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
host cluster. What does not pass, and why, is in [Karmada
compatibility](karmada-compatibility.md#karmadas-own-suite)."""


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


def write_karmadas_part(column: Column, path: Path = PAGE) -> None:
    """Write what the page says of Karmada's suite, and leave the rest of it as it is."""
    old = path.read_text()
    fresh = Report(karmada=[column]).text()
    score = f"| {column.heading} | {column.score} |"
    head = old.partition(f"\n{_KARMADA_HEADING}\n")[0]
    row = re.compile(rf"^\| {re.escape(column.heading)} \|.*$", re.MULTILINE)
    head = row.sub(lambda _: score, head)
    part = fresh.partition(f"\n{_KARMADA_HEADING}\n")[2]
    path.write_text(f"{head}\n{_KARMADA_HEADING}\n{part}")


# -- the section about Karmada's suite ---------------------------------------------------------

_ABOUT: Final = {
    KIND: "a cluster made with kind, which needs Docker",
    IMAGES: "images of Karmada's that run in its host cluster",
    CONTAINERS: "images whose containers run and talk to each other, which simulated members lack",
    HERE: "Clusterspace does otherwise",
}


class Unexplained(Exception):
    """Specs failed of which nobody has said why; the text names them."""


def karmada_section(
    version: str,
    results: Sequence[Result],
    not_run: Sequence[Spec],
    passed_alone: Collection[Spec] = (),
) -> str:
    """Return the section: the count, the files, and what does not pass, with its reason."""
    unexplained = [each for each in results if not each.passed and reason_of(each) is None]
    unexplained += [
        Result(each, passed=False, seconds=0, why="it was not run")
        for each in not_run
        if not WEBHOOK.fits(each)
    ]
    if unexplained:
        lines = (f"{each.spec.file}: {each.spec.name}: {each.why}" for each in unexplained)
        raise Unexplained("no reason in tools/conformance/reasons.py for\n  " + "\n  ".join(lines))
    reasons: list[tuple[Spec, Reason]] = [
        *((each.spec, reason_of(each) or WEBHOOK) for each in results if not each.passed),
        *((each, WEBHOOK) for each in not_run),
    ]
    total, passed = len(results) + len(not_run), sum(each.passed for each in results)
    files: dict[str, list[bool]] = {}
    for each in results:
        files.setdefault(Path(each.spec.file).name, []).append(each.passed)
    for spec in not_run:
        files.setdefault(Path(spec.file).name, []).append(False)
    counted = [(f"`{file}`", f"{sum(each)} of {len(each)}") for file, each in sorted(files.items())]
    parts = [
        _SECTION,
        f"Of the {total} specs of Karmada's end-to-end suite ({version}, base), run unmodified on"
        f" simulated members, **{passed} pass**. `make conformance` writes this section; the hub"
        " accepts Karmada's agents there, controllers evict by taints and look at members every"
        " second, the Pull member reports its credentials, as Karmada's agents do, and members have"
        " the few objects that every cluster of kind has.",
        table(("file", "passed"), counted),
    ]
    if passed_alone:
        names = "\n".join(f"- {cell(_plain(each))}" for each in sorted(passed_alone))
        parts += [
            "Of these, some failed in the whole run, beside others on a busy machine or for what"
            " was mended and made ready since (the address that has search among it), and passed"
            f" when they were run again:\n\n{names}"
        ]
    if reasons:
        rows = [
            (cell(_plain(spec)), _ABOUT[reason.about], reason.text)
            for spec, reason in sorted(reasons, key=lambda each: each[0])
        ]
        parts += ["What does not pass:", table(("spec", "about", "why"), rows)]
    return "\n\n".join(parts) + "\n"


def write_section(section: str, path: Path = COMPATIBILITY) -> None:
    """Put the section in the place of the one that is there."""
    before, found, rest = path.read_text().partition(f"{_SECTION}\n")
    following = rest.find("\n### ")
    if not found or following < 0:
        raise ValueError(f"{path.name} has no section {_SECTION!r} before another")
    path.write_text(f"{before}{section}{rest[following:]}")
