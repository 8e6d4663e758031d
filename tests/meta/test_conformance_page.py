"""What other projects' suites report becomes a page that hides nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tools.conformance import kubernetes
from tools.conformance.page import PAGE, Column, Report
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
