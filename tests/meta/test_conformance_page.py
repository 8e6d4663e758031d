"""What other projects' suites report becomes a page that hides nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tools.conformance import karmada, kubernetes
from tools.conformance.page import (
    COMPATIBILITY,
    PAGE,
    Column,
    Report,
    Unexplained,
    karmada_section,
    write_karmadas_part,
    write_section,
)
from tools.conformance.reasons import REASONS
from tools.conformance.suites import Missing, Result, Spec, named_file, read_report

WATCH = Spec("apimachinery/watch.go", "[sig-api-machinery] Watchers should start [Conformance]")
PODS = Spec("common/node/pods.go", "[sig-node] Pods should get a host IP [Conformance]")


def reported(spec: Spec, state: str, message: str = "") -> dict[str, Any]:
    *containers, leaf = spec.name.split(" should ")
    return {
        "LeafNodeType": "It",
        "State": state,
        "ContainerHierarchyTexts": containers,
        "LeafNodeText": f"should {leaf}",
        "LeafNodeLocation": {"FileName": f"/somewhere/test/e2e/{spec.file}"},
        "RunTime": 2_000_000_000,
        "Failure": {"Message": message},
    }


def test_a_report_is_read_as_results_and_what_was_skipped_is_none(tmp_path: Path) -> None:
    specs = [reported(WATCH, "passed"), reported(PODS, "skipped")]
    (tmp_path / "report.json").write_text(json.dumps([{"SpecReports": specs}]))

    assert read_report(tmp_path) == [Result(WATCH, passed=True, seconds=2.0)]
    assert [each.spec for each in read_report(tmp_path, left_out=True)] == [PODS]


def test_what_a_failure_before_it_kept_from_running_has_failed(tmp_path: Path) -> None:
    why = "Spec skipped because an earlier spec in an ordered container failed"
    specs = [reported(PODS, "skipped", why)]
    (tmp_path / "report.json").write_text(json.dumps([{"SpecReports": specs}]))

    assert [each.passed for each in read_report(tmp_path)] == [False]


def test_the_page_says_what_failed_what_was_not_run_and_why() -> None:
    failed = Result(WATCH, passed=False, seconds=1.0, why="timed out")
    report = Report(
        kubernetes=[Column("on the hub", [failed]), Column("on a member", missing="no binary")],
        karmada=[Column("on the fleet", missing="`CONFORMANCE_KARMADA` names no file")],
        not_run=[PODS],
    )

    page = report.text()

    assert "| on the hub | 0 of 1 |" in page
    assert "| on a member | not run: no binary |" in page
    assert "| Watchers should start | **failed** |" in page
    assert "- on the hub: Watchers should start: `timed out`" in page
    assert "### Not run: 1 specs that need a kubelet" in page
    assert "| `common/node/pods.go` | 1 |" in page
    assert "not run: `CONFORMANCE_KARMADA` names no file" in page


def test_a_binary_that_is_not_there_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFORMANCE_GINKGO", "/nowhere/ginkgo")
    with pytest.raises(Missing, match="CONFORMANCE_GINKGO"):
        named_file("CONFORMANCE_GINKGO")


def test_only_specs_that_need_no_kubelet_are_run() -> None:
    assert kubernetes.is_node_free(WATCH)
    assert not kubernetes.is_node_free(PODS)


def test_the_page_is_there() -> None:
    assert "## Kubernetes" in PAGE.read_text()


JOIN = Spec("suites/base/karmadactl_test.go", "Karmadactl join/unjoin testing joining a cluster")
DOCKER = 'failed to get docker info: command "docker info" failed'


def test_the_section_counts_and_says_of_each_that_does_not_pass_why() -> None:
    webhook = Spec(
        "suites/base/resourceinterpreter_test.go", "Resource interpreter webhook testing"
    )
    results = [
        Result(Spec("suites/base/karmadactl_test.go", "Karmadactl version"), True, 1.0),
        Result(JOIN, False, 1.0, DOCKER),
    ]

    section = karmada_section("v1", results, [webhook])

    assert "Of the 3 specs" in section
    assert "**1 pass**" in section
    assert "| `karmadactl_test.go` | 1 of 2 |" in section
    assert "it makes a cluster with kind" in section
    assert "| Resource interpreter webhook testing |" in section


def test_what_failed_once_and_passed_again_counts_and_is_named(tmp_path: Path) -> None:
    version = Spec("suites/base/karmadactl_test.go", "Karmadactl version")
    other = Spec("suites/base/karmadactl_test.go", "Karmadactl top")
    reports = {
        "karmada": [(version, "failed", "timed out"), (other, "passed", "")],
        "karmada-again-1": [(version, "passed", ""), (other, "failed", "beside the point")],
    }
    for name, specs in reports.items():
        (tmp_path / name).mkdir()
        listed = [{**reported(spec, *rest), "LeafNodeText": spec.name} for spec, *rest in specs]
        for each in listed:
            each["ContainerHierarchyTexts"] = []
        (tmp_path / name / "report.json").write_text(json.dumps([{"SpecReports": listed}]))

    results, passed_alone = karmada.read_results(tmp_path)

    assert all(each.passed for each in results)
    assert passed_alone == {version}
    section = karmada_section("v1", results, [], passed_alone)
    assert "**2 pass**" in section
    assert "were run again:\n\n- Karmadactl version" in section


def test_a_spec_that_was_never_run_is_a_finding() -> None:
    with pytest.raises(Unexplained, match="it was not run"):
        karmada_section("v1", [], [JOIN])


def test_a_failure_that_nobody_explained_is_not_written() -> None:
    failed = Result(JOIN, False, 1.0, "Timed out after 420.001s.")

    with pytest.raises(Unexplained, match="joining a cluster: Timed out"):
        karmada_section("v1", [failed], [])


def test_the_section_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# P\n\n### Karmada's own suite\n\nold\n\n### What differs\n\nmuch\n")

    write_section("### Karmada's own suite\n\nnew\n", page)

    assert page.read_text() == "# P\n\n### Karmada's own suite\n\nnew\n\n### What differs\n\nmuch\n"


def test_karmadas_part_is_written_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    kubernetes_part = Report(
        kubernetes=[Column("on the hub", [Result(WATCH, True, 1.0)])],
        karmada=[Column("on the fleet", missing="no binary")],
    )
    page.write_text(kubernetes_part.text())

    write_karmadas_part(Column("on the fleet", [Result(JOIN, True, 1.0)]), page)

    written = page.read_text()
    assert "| on the fleet | 1 of 1 |" in written
    assert "| Watchers should start | passed |" in written
    assert "no binary" not in written


def test_every_reason_is_about_kind_images_or_us_and_the_page_has_its_section() -> None:
    assert {each.about for each in REASONS} <= {"kind", "images", "containers", "here"}
    assert all(each.text for each in REASONS)
    assert COMPATIBILITY.read_text().count("\n### Karmada's own suite\n") == 1
