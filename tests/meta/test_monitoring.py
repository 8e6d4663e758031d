"""The rules and the dashboard of deploy/monitoring speak of metrics and labels that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import ProcessCollector
from tools.reference.metrics_page import find_metrics

from clusterspace.controllers.controller import AttemptResult
from clusterspace.telemetry import metrics

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "rules.yaml"
DASHBOARD = MONITORING / "dashboard.json"
SCRAPE = MONITORING / "scrape.yaml"
GUIDE = ROOT / "docs" / "guides" / "alerts.md"

PROCESS = {
    "process_cpu_seconds_total", "process_max_fds", "process_open_fds",
    "process_resident_memory_bytes", "process_start_time_seconds", "process_virtual_memory_bytes",
}  # fmt: skip
BY_PROMETHEUS = {"job", "instance"}
"""Labels that whoever scrapes adds."""
FUNCTIONS = {"absent", "histogram_quantile", "increase", "rate"}
AGGREGATIONS = {"count", "max", "min", "sum"}
VALUES = {"verb": metrics.VERBS, "result": {each.value for each in AttemptResult}}
"""Labels with few values, and which these are."""
JOBS = {"clusterspace-hub", "clusterspace-fleet", "clusterspace-controllers"}

_TOKENS = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_:][\w:]*)|(?P<number>\d+(?:\.\d+)?)'
    r"|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/()<>{},=])"
    r"|(?P<space>\s+)"
)


class WrongExpression(AssertionError):
    """An expression has something that Prometheus would refuse, or that nobody measures."""


def labels_by_series() -> dict[str, set[str]]:
    """Return every series that a scrape brings, and its labels."""
    known: dict[str, set[str]] = {"up": set()} | {name: set() for name in PROCESS}
    for each in find_metrics():
        if each.type == "histogram":
            known[f"{each.name}_bucket"] = {*each.labels, "le"}
            known |= {f"{each.name}_{end}": set(each.labels) for end in ("sum", "count")}
        else:
            known[each.name] = set(each.labels)
    return known


SERIES = labels_by_series()


def tokens_of(expression: str) -> list[tuple[str, str]]:
    """Return kind and text of each token; WrongExpression for what is none."""
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(expression):
        token = _TOKENS.match(expression, place)
        if token is None:
            raise WrongExpression(f"what is {expression[place : place + 10]!r}?")
        found.append((str(token.lastgroup), token[0]))
        place = token.end()
    return [each for each in found if each[0] != "space"]


def check(expression: str) -> set[str]:
    """Return the series of an expression, every one known, with labels they have."""
    tokens = [*tokens_of(expression), ("end", "")]
    signs = [text for kind, text in tokens if kind == "sign"]
    for opens, closes in ("()", "{}"):
        if signs.count(opens) != signs.count(closes):
            raise WrongExpression(f"{opens} without {closes}")
    series: set[str] = set()
    grouped: set[str] = set()
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        following = tokens[place + 1][1] if kind != "end" else ""
        place += 1
        if kind != "name":
            continue
        if text in ("by", "without"):
            names, place = list_at(tokens, place)
            grouped.update(names)
        elif text in FUNCTIONS | AGGREGATIONS:
            if following != "(" and not (text in AGGREGATIONS and following in ("by", "without")):
                raise WrongExpression(f"{text} is called with ( behind it")
        elif text in SERIES:
            series.add(text)
            if following == "{":
                place = check_matchers(text, tokens, place)
            if text.endswith(("_total", "_bucket", "_sum", "_count")) and text != "up":
                counted_over_time(text, tokens, place)
        else:
            raise WrongExpression(f"nobody measures {text}")
    known = BY_PROMETHEUS.union(*(SERIES[each] for each in series))
    if grouped - known:
        raise WrongExpression(f"{sorted(series)} have no {sorted(grouped - known)}")
    return series


def list_at(tokens: list[tuple[str, str]], place: int) -> tuple[list[str], int]:
    """Return the names between parentheses, and the place behind them."""
    end = next(at for at in range(place, len(tokens)) if tokens[at][1] == ")")
    return [text for kind, text in tokens[place:end] if kind == "name"], end + 1


def check_matchers(series: str, tokens: list[tuple[str, str]], place: int) -> int:
    """Check what is between braces behind a series; return the place behind."""
    end = next(at for at in range(place, len(tokens)) if tokens[at][1] == "}")
    inside = tokens[place + 1 : end]
    for start in range(0, len(inside), 4):
        label, operator, value = inside[start : start + 3]
        if label[1] not in SERIES[series] | BY_PROMETHEUS:
            raise WrongExpression(f"{series} has no {label[1]}")
        if operator[1] not in ("=", "!=", "=~", "!~") or value[0] != "text":
            raise WrongExpression(f"{series} is matched by {operator[1]} {value[1]}")
        check_job(label[1], operator[1], value[1].strip('"'))
        if label[1] in VALUES:
            strange = set(value[1].strip('"').split("|")) - VALUES[label[1]]
            if strange:
                raise WrongExpression(f"{label[1]} is never {sorted(strange)}")
    return end + 1


def check_job(label: str, operator: str, value: str) -> None:
    """Check that a job that is named is one that the scrape configuration has."""
    if label != "job" or value == "$job":
        return
    if not any(value == each if operator == "=" else re.fullmatch(value, each) for each in JOBS):
        raise WrongExpression(f"no job is called {value}")


def counted_over_time(series: str, tokens: list[tuple[str, str]], place: int) -> None:
    """Check that a counter is looked at over a time: its value since a start says nothing."""
    if tokens[place][0] != "range":
        raise WrongExpression(f"{series} only grows: it needs a range")


def alerts() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    every: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [each for each in every if each["type"] != "row"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_a_rule_has_the_shape_that_prometheus_loads(alert: dict[str, Any]) -> None:
    assert alert.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Clusterspace[A-Z][A-Za-z]+", alert["alert"])
    assert re.fullmatch(r"\d+[smhd]", alert.get("for", "0s"))
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary"}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_a_rule_speaks_of_metrics_and_labels_that_there_are(alert: dict[str, Any]) -> None:
    series = check(alert["expr"])
    written = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))

    assert series
    # Only what the expression keeps can be written.
    kept = set(re.findall(r"by \(([^)]*)\)", alert["expr"])[:1])
    names = {each.strip() for group in kept for each in group.split(",")}
    assert written <= (names or BY_PROMETHEUS)


def test_names_of_groups_and_alerts_are_given_once() -> None:
    groups = [each["name"] for each in yaml.safe_load(RULES.read_text())["groups"]]
    names = [each["alert"] for each in alerts()]

    assert len(set(groups)) == len(groups)
    assert len(set(names)) == len(names)


def test_promtool_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH")

    done = subprocess.run([promtool, "check", "rules", str(RULES)], check=False, timeout=60)

    assert done.returncode == 0


def test_the_guide_says_what_to_do_about_every_alert() -> None:
    explained = re.findall(r"^\| `(Clusterspace\w+)` \|", GUIDE.read_text(), re.MULTILINE)

    assert sorted(explained) == sorted(each["alert"] for each in alerts())


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_speaks_of_metrics_and_labels_that_there_are(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        known = BY_PROMETHEUS.union(*(SERIES[each] for each in check(target["expr"])))
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
    assert panel["description"].endswith(".")


def test_the_dashboard_has_the_shape_that_grafana_loads() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    every = dashboard["panels"]
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\b", DASHBOARD.read_text()))
    taken = [
        (x, y)
        for place in (each["gridPos"] for each in every)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert dashboard["schemaVersion"] >= 30
    assert len({each["id"] for each in every}) == len(every)
    assert used <= variables
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_jobs_are_scraped_under_the_names_that_the_rules_know() -> None:
    configured = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]

    assert {each["job_name"] for each in configured} == JOBS


def test_what_is_measured_of_a_process_is_on_the_page() -> None:
    families = ProcessCollector(registry=None).collect()
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()

    assert names <= PROCESS
    assert all(f"`{each}`" in page for each in PROCESS)


@pytest.mark.parametrize(
    "expression",
    [
        "cluster_redy_state == 0",
        "sum by (cluster) (cluster_ready_state)",
        'apiserver_request_total{code="500"} > 1',
        'rate(apiserver_request_total{status="500"}[5m])',
        "rate(apiserver_request_total[5 minutes])",
        "sum(rate(apiserver_request_total[5m])",
        'up{job="clusterspace-hubs"} == 0',
        'rate(apiserver_request_total{verb="POST"}[5m])',
        "sum cluster_ready_state",
    ],
)
def test_an_expression_that_could_not_work_is_found(expression: str) -> None:
    with pytest.raises(WrongExpression):
        check(expression)
