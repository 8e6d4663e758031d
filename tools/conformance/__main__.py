"""Run what can be run here, print the scores, and write the page."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.conformance import karmada, kubernetes
from tools.conformance.page import (
    COMPATIBILITY,
    PAGE,
    Column,
    Report,
    Unexplained,
    karmada_section,
    write,
    write_karmadas_part,
    write_section,
)
from tools.conformance.suites import Missing, Spec, read_report

_HEADINGS: Final = {
    "hub": f"Kubernetes {kubernetes.VERSION} on the hub",
    "member": f"Kubernetes {kubernetes.VERSION} on a simulated member",
    "karmada": f"Karmada {karmada.VERSION} on the fleet",
}


def main() -> None:
    """Run the suites, one after the other."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(_HEADINGS)}; all without it")
    parser.add_argument("--focus", default="", help="only specs whose name has this expression")
    parser.add_argument("--processes", type=int, default=4, help="specs at a time")
    parser.add_argument("--work", type=Path, help="where logs and reports go, and stay")
    parser.add_argument(
        "--read", action="store_true", help="run nothing: write the page from reports in --work"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="run what failed of Karmada's in --work, or never ran, and count how that ends",
    )
    asked = parser.parse_args()
    if unknown := set(asked.targets) - set(_HEADINGS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    work = (asked.work or Path(tempfile.mkdtemp(prefix="conformance-"))).resolve()
    report = Report()
    passed_alone: set[Spec] = set()
    for target, heading in _HEADINGS.items():
        column = Column(heading)
        (report.karmada if target == "karmada" else report.kubernetes).append(column)
        if asked.targets and target not in asked.targets:
            column.missing = "it was not asked for"
            continue
        try:
            if target == "karmada":
                if not asked.read:
                    karmada.run(work, asked.focus, asked.processes, again=asked.again)
                column.results, passed_alone = karmada.read_results(work)
            else:
                if not asked.read:
                    kubernetes.run(target, work, asked.focus, asked.processes)
                results = read_report(kubernetes.directory_for(target, work))
                column.results = [each for each in results if kubernetes.is_node_free(each.spec)]
                specs = kubernetes.conformance_specs(target, work)
                report.not_run = [each for each in specs if not kubernetes.is_node_free(each)]
        except Missing as missing:
            column.missing = str(missing)
        print(f"{column.heading}: {column.score}")
        for result in column.results:
            if not result.passed:
                print(f"  failed: {result.spec.name}\n          {result.why}")
    print(f"logs and reports: {work}")
    # A page with some of the specs would look like one with all of them.
    if not asked.focus and not asked.targets:
        write(report)
        print(f"written: {PAGE}")
    suite = report.karmada[0]
    if not asked.focus and not suite.missing:
        left_out = karmada.read_left_out(work)
        try:
            section = karmada_section(karmada.VERSION, suite.results, left_out, passed_alone)
        except Unexplained as unexplained:
            sys.exit(f"{unexplained}\n{COMPATIBILITY} is not written")
        write_section(section)
        if asked.targets == ["karmada"]:
            write_karmadas_part(suite)
        print(f"written: {COMPATIBILITY}")
    columns = (*report.kubernetes, *report.karmada)
    failed = any(not result.passed for each in columns for result in each.results)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
