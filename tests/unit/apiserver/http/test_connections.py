from dataclasses import dataclass, field

import pytest

from clusterspace.apiserver.http.connections import Arrivals, Limits, group_of


@dataclass
class Door:
    """Arrivals, and what they had done."""

    limits: Limits
    started: list[str] = field(default_factory=list[str])
    evicted: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.arrivals = Arrivals[str](self.limits, self.started.append, self.evicted.append)

    def knock(self, guest: str, address: str, now: float = 0.0) -> None:
        assert self.arrivals.admit(guest, address)
        self.arrivals.wait(guest, now)


def small(**changes: int) -> Door:
    values = {"connections": 100, "connections_per_address": 50, "newcomers": 4}
    return Door(Limits(**{**values, "newcomers_per_address": 2, **changes}))


def test_guests_of_one_address_start_as_others_make_room() -> None:
    door = small()
    for guest in ("a", "b", "c", "d"):
        door.knock(guest, "1.1.1.1")
    assert door.started == ["a", "b"]

    door.arrivals.trust("a", 0.1)
    door.arrivals.leave("b", 0.1)

    assert door.started == ["a", "b", "c", "d"]
    assert (door.arrivals.newcomer_count, door.evicted) == (2, [])


def test_an_old_newcomer_gives_way_only_to_somebody_who_waits() -> None:
    door = small()
    door.knock("old", "1.1.1.1")
    door.knock("young", "1.1.1.1", 1.5)
    door.arrivals.give_room(10.0)
    assert door.evicted == []

    door.knock("next", "1.1.1.1", 10.0)

    assert (door.evicted, door.started[-1]) == (["old"], "next")


def test_when_the_server_is_full_the_greediest_address_pays() -> None:
    door = small(newcomers=3)
    door.knock("greedy-1", "1.1.1.1")
    door.knock("greedy-2", "1.1.1.1")
    door.knock("other", "2.2.2.2")
    door.knock("user", "3.3.3.3", 1.0)
    assert "user" not in door.started

    door.arrivals.give_room(3.0)

    assert (door.evicted, door.started[-1]) == (["greedy-1"], "user")


def test_addresses_take_turns() -> None:
    door = small(newcomers=2)
    door.knock("a1", "1.1.1.1")
    door.knock("a2", "1.1.1.1")
    door.knock("a3", "1.1.1.1")
    door.knock("a4", "1.1.1.1")
    door.knock("b1", "2.2.2.2")
    door.arrivals.leave("a1", 0.1)
    door.arrivals.leave("a2", 0.1)

    assert sorted(door.started[2:]) == ["a3", "b1"]


def test_the_trusted_are_never_evicted() -> None:
    door = small()
    door.knock("user", "1.1.1.1")
    door.arrivals.trust("user", 0.0)
    for guest in ("a", "b", "c"):
        door.knock(guest, "1.1.1.1")
    door.arrivals.give_room(60.0)

    assert door.evicted == ["a"]


@pytest.mark.parametrize(
    ("limits", "admitted"), [({"connections": 3}, 3), ({"connections_per_address": 2}, 2)]
)
def test_connections_are_capped_in_all_and_by_address(
    limits: dict[str, int], admitted: int
) -> None:
    door = small(**limits)
    assert [door.arrivals.admit(str(n), "1.1.1.1") for n in range(5)].count(True) == admitted
    door.arrivals.leave("0", 0.0)
    assert door.arrivals.admit("again", "1.1.1.1")


def test_leaving_twice_is_leaving_once() -> None:
    door = small()
    door.knock("a", "1.1.1.1")
    door.arrivals.leave("a", 0.0)
    door.arrivals.leave("a", 0.0)

    assert door.arrivals.newcomer_count == 0
    assert [door.arrivals.admit(str(n), "1.1.1.1") for n in range(50)].count(True) == 50


def test_one_network_of_ipv6_counts_as_one_address() -> None:
    assert group_of("2001:db8::1") == group_of("2001:db8::ffff:1") != group_of("2001:db8:0:1::1")
    assert group_of("fe80::1%eth0") == "fe80::"
    assert group_of("::ffff:10.0.0.1") == group_of("10.0.0.1")
    assert group_of("not:an:address") == "not:an:address"
