"""`clusterspace interpret`, typed as karmadactl's users type it."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clusterspace.cli.commands.interpret import interpret

CUSTOMIZATION = """
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: sites}
spec:
  target: {apiVersion: example.io/v1, kind: Site}
  customizations:
    replicaResource:
      luaScript: function GetReplicas(obj) return obj.spec.size, {resourceRequest = {cpu = 1}} end
    replicaRevision:
      luaScript: function ReviseReplica(obj, n) obj.spec.size = n return obj end
    retention:
      luaScript: |
        function Retain(desired, observed)
          desired.spec.paused = observed.spec.paused
          return desired
        end
    statusAggregation:
      luaScript: |
        function AggregateStatus(obj, items)
          obj.status = {ready = 0, since = items[1].status.since}
          for i = 1, #items do obj.status.ready = obj.status.ready + items[i].status.ready end
          return obj
        end
"""
SITE = """
apiVersion: example.io/v1
kind: Site
metadata: {name: shop}
spec: {size: 3, paused: true, tags: []}
"""
STATUSES = """
clusterName: east
status: {ready: 2, since: 2026-01-02T03:04:05Z}
---
clusterName: west
status: {ready: 1}
"""


@pytest.fixture
def type_in(tmp_path: Path):
    (tmp_path / "sites.yaml").write_text(CUSTOMIZATION)
    (tmp_path / "site.yaml").write_text(SITE)
    (tmp_path / "desired.yaml").write_text(SITE.replace("true", "false"))
    (tmp_path / "statuses.yaml").write_text(STATUSES)

    def typed(line: str) -> Result:
        words = [str(tmp_path / each) if each.endswith(".yaml") else each for each in line.split()]
        return CliRunner().invoke(interpret, words)

    return typed


def test_an_answer_reads_as_karmadactls(type_in) -> None:
    asked = "-f sites.yaml --observed-file site.yaml --operation"

    assert type_in(f"{asked} interpretReplica").output == (
        "---\n# [1/2] replica:\n3\n---\n# [2/2] requires:\nresourceRequest:\n  cpu: '1'\n"
    )
    revised = type_in(f"{asked} reviseReplica --desired-replica 5").output
    assert revised.splitlines()[1] == "# [1/1] revised:"
    assert "size: 5\n  tags: []" in revised
    retained = type_in(f"{asked} Retain --desired-file desired.yaml").output
    assert "paused: true" in retained
    aggregated = type_in(f"{asked} aggregateStatus --status-file statuses.yaml").output
    assert "ready: 3\n  since: '2026-01-02T03:04:05Z'" in aggregated


def test_checking_names_what_is_wrong_and_ends_with_one(type_in, tmp_path: Path) -> None:
    assert type_in("-f sites.yaml --check").exit_code == 0

    broken = CUSTOMIZATION.replace("return obj end", "return obj")
    (tmp_path / "broken.yaml").write_text(broken.replace("name: sites", "name: broken"))
    checked = type_in("-f sites.yaml -f broken.yaml --check")

    assert checked.exit_code == 1
    assert "wrong: script:1: 'end' expected" in checked.output
    assert checked.output.count("none") == 8


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-f sites.yaml", "none is given"),
        ("-f sites.yaml --operation guess --observed-file site.yaml", "guess is none"),
        ("-f sites.yaml --operation interpretReplica", "name one with --observed-file"),
        ("-f sites.yaml --operation retain --observed-file site.yaml", "--desired-file"),
        ("-f sites.yaml --operation interpretHealth --observed-file site.yaml", "no customization"),
        ("-f site.yaml --check", "has Site in it"),
        ("-f sites.yaml --operation retain --observed-file statuses.yaml", "2 objects"),
        ("-f statuses.yaml --check", "without a kind"),
    ],
)
def test_what_cannot_be_tried_is_told_in_a_sentence(type_in, line: str, says: str) -> None:
    answer = type_in(line)

    assert answer.exit_code != 0
    assert says in answer.output
