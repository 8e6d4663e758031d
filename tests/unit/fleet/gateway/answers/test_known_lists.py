"""Whom to ask again for a right before what is known is shown."""

from clusterspace.fleet.gateway.answers.known_lists import to_be_reviewed


def test_who_has_not_said_yes_for_ten_seconds_is_asked():
    assert to_be_reviewed({"east": 0.0, "west": 9.0, "north": 0.05}, 10.1) == ["east", "north"]


def test_who_has_just_said_yes_is_not_asked():
    assert to_be_reviewed({"east": 5.2, "west": 9.0}, 10.1) == []


def test_a_few_are_asked_before_they_have_to_be_the_oldest_first():
    allowed_at = {f"m{number:04}": 10.0 - number / 1000 for number in range(1000)}

    first = to_be_reviewed(allowed_at, 15.5)

    assert first == [f"m{number:04}" for number in range(999, 968, -1)]


def test_who_asks_often_has_nobody_left_who_has_to_be_asked():
    allowed_at, now, most = dict.fromkeys(map(str, range(1000)), 0.0), 0.0, 0
    while now < 60:
        now += 0.14
        asked = to_be_reviewed(allowed_at, now)
        allowed_at |= dict.fromkeys(asked, now)
        most = max(most, len(asked))

    assert most == 31
