"""Cron schedules: when something is due."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from clusterspace.kube.schedules import Schedule, read_schedule


def moment(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:15:00"),
        ("5/20 * * * *", "2026-01-01T00:26:00", "2026-01-01T00:45:00"),
        ("0 9-17 * * mon-fri", "2026-01-02T18:00:00", "2026-01-05T09:00:00"),
        ("0 0 31 * *", "2026-02-01T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 13 * fri", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("@hourly", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("@every 90s", "2026-01-01T00:00:00", "2026-01-01T00:01:30"),
    ],
)
def test_a_schedule_says_when_it_is_next(schedule: str, after: str, expected: str) -> None:
    found = Schedule.parse(schedule).after(moment(after))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat()[:19] == expected


def test_a_schedule_keeps_to_its_zone_and_one_that_never_comes_ends() -> None:
    tokyo = Schedule.parse("0 9 * * *", ZoneInfo("Asia/Tokyo"))
    assert tokyo.after(moment("2026-01-01T10:00:00", "Asia/Tokyo")) == moment("2026-01-02T00:00:00")
    assert Schedule.parse("0 0 30 2 *").after(moment("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    ("text", "zone"),
    [("", ""), ("* * * *", ""), ("* * * * *", "Nowhere/At_All"), ("TZ=Mars * * * * *", "")],
)
def test_a_schedule_that_makes_no_sense_is_none(text: str, zone: str) -> None:
    assert read_schedule(text, zone) is None


def test_a_zone_in_the_schedule_wins_over_one_beside_it() -> None:
    read = read_schedule("CRON_TZ=Asia/Tokyo 0 9 * * *", "Europe/Berlin")

    assert read == Schedule.parse("0 9 * * *", ZoneInfo("Asia/Tokyo"))
