"""Rules of a CronFederatedHPA: when they are due, and what is remembered of them."""

from datetime import UTC, datetime
from typing import Any

from clusterspace.fleet.autoscaling.cron_federated_hpa import (
    Due,
    due_rules,
    histories_of,
    with_execution,
)
from clusterspace.kube.objects import Object

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp()
MORNING = {"name": "morning", "schedule": "0 8 * * *", "targetReplicas": 5}
EVENING = {"name": "evening", "schedule": "0 20 * * *", "targetReplicas": 1}


def cron(*rules: Object, **next_times: str) -> Object:
    histories = [
        {"ruleName": name, "nextExecutionTime": next_time} for name, next_time in next_times.items()
    ]
    return {"spec": {"rules": list(rules)}, "status": {"executionHistories": histories}}


def next_of(written: Object) -> list[Any]:
    return [each.get("nextExecutionTime") for each in histories_of(written, NOON)]


def test_a_new_rule_is_due_at_its_next_time_and_not_for_those_before_it() -> None:
    assert next_of(cron(MORNING, EVENING)) == ["2026-03-03T08:00:00Z", "2026-03-02T20:00:00Z"]


def test_a_time_that_passed_while_nobody_looked_is_still_due() -> None:
    written = cron(MORNING, morning="2026-03-01T08:00:00Z")

    assert next_of(written) == ["2026-03-01T08:00:00Z"]
    assert len(due_rules(written, histories_of(written, NOON), NOON)) == 1


def test_a_rule_with_another_schedule_is_not_due_at_a_time_of_the_old_one() -> None:
    moved = {**MORNING, "schedule": "30 9 * * *"}

    assert next_of(cron(moved, morning="2026-03-02T08:00:00Z")) == ["2026-03-03T09:30:00Z"]


def test_a_suspended_rule_has_no_next_time_and_one_that_was_taken_out_no_history() -> None:
    resting = {**MORNING, "suspend": True}

    histories = histories_of(cron(resting, morning="2026-03-02T08:00:00Z", gone="x"), NOON)

    assert histories == [{"ruleName": "morning"}]


def test_of_several_rules_that_are_due_the_last_one_has_the_last_word() -> None:
    written = cron(EVENING, MORNING, evening="2026-03-01T20:00:00Z", morning="2026-03-02T08:00:00Z")

    due = due_rules(written, histories_of(written, NOON), NOON)

    assert [each.rule["name"] for each in due] == ["evening", "morning"]


def test_executions_are_kept_newest_first_and_only_so_many() -> None:
    history: Object = {"ruleName": "morning"}
    rule = {**MORNING, "successfulHistoryLimit": 2}
    for day in range(3):
        due = Due(NOON + day * 86400, rule)
        history = with_execution(history, due, due.at + 1, "")

    kept = history["successfulExecutions"]
    assert [each["scheduleTime"] for each in kept] == [
        "2026-03-04T12:00:00Z",
        "2026-03-03T12:00:00Z",
    ]
    assert kept[0]["appliedReplicas"] == 5
    assert history["nextExecutionTime"] == "2026-03-05T08:00:00Z"


def test_a_failure_is_kept_with_its_words_and_the_rule_comes_again() -> None:
    history = with_execution({"ruleName": "morning"}, Due(NOON, MORNING), NOON, "not found")

    assert history["failedExecutions"][0]["message"] == "not found"
    assert history["nextExecutionTime"] == "2026-03-03T08:00:00Z"
