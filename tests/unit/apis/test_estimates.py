"""How many replicas a cluster can take: counted node by node, and never without end."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.estimates import (
    MOST_GROUPS,
    MOST_ROOMS,
    Claim,
    Estimate,
    NodeGroup,
    NodeRoom,
    estimate_nodes,
    read_claim,
    read_estimate,
    write_estimate,
    write_quota,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import Quantity, parse_quantity

CPU = Claim({"cpu": parse_quantity("1")}, namespace="shop")
GPU_TAINT = {"key": "gpu", "effect": "NoSchedule"}


def amounts(**given: str) -> dict[str, Quantity]:
    return {name: parse_quantity(text) for name, text in given.items()}


def node(cpu: str, pods: str = "110", taint: Object | None = None, **labels: str) -> NodeGroup:
    room = NodeRoom(1, amounts(cpu=cpu, pods=pods))
    return NodeGroup(labels, () if taint is None else (taint,), (room,))


def estimate(*nodes: NodeGroup, quotas: list[Object] | None = None) -> Estimate:
    found = estimate_nodes(nodes)
    assert found is not None
    read = read_estimate({**write_estimate(found), "quotas": quotas or []})
    assert read is not None
    return read


def test_crumbs_on_many_nodes_are_no_place() -> None:
    crumbs = estimate(*(node("900m") for _ in range(10)))

    assert crumbs.fits(CPU) == 0
    assert crumbs.fits(Claim(amounts(cpu="300m"))) == 30
    assert crumbs.fits(Claim()) == 1100


def test_a_node_that_is_full_of_pods_takes_none() -> None:
    assert estimate(node("64", pods="2"), node("1")).fits(CPU) == 3


def test_a_resource_that_no_node_offers_is_not_there() -> None:
    assert estimate(node("64")).fits(Claim(amounts(**{"example.com/gpu": "1"}))) == 0


def test_taints_of_nodes_keep_replicas_away_unless_these_tolerate_them() -> None:
    mixed = estimate(node("4"), node("8", taint=GPU_TAINT))
    tolerant = Claim(CPU.each, tolerations=({"key": "gpu", "operator": "Exists"},))

    assert mixed.fits(CPU) == 4
    assert mixed.fits(tolerant) == 12


def test_nodes_are_chosen_by_selector_and_affinity() -> None:
    zones = estimate(node("4", zone="a"), node("8", zone="b", size="3"), node("2", zone="c"))

    def fits(selector: dict[str, str] | None = None, *terms: Object) -> int:
        return zones.fits(Claim(CPU.each, node_selector=selector or {}, node_terms=terms))

    def term(key: str, operator: str, *values: str) -> Object:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    assert fits({"zone": "a"}) == 4
    assert fits({"zone": "a", "size": "3"}) == 0
    assert fits({"disk": "ssd"}) == 0
    assert fits(None, term("zone", "NotIn", "a")) == 10
    assert fits(None, term("size", "Gt", "2")) == 8
    assert fits(None, term("zone", "In", "a"), term("zone", "In", "c")) == 6
    assert fits(None, {}) == 0
    assert fits(None, term("zone", "Near", "a")) == 0


def test_what_is_taken_is_taken_from_nodes() -> None:
    two = estimate(node("3"), node("3"))

    left = two.without(CPU, 2)

    assert left.fits(CPU) == 4
    assert left.fits(Claim(amounts(cpu="3"))) == 0  # one on each
    assert two.without(CPU, 100).fits(CPU) == 0


def test_what_fits_nowhere_takes_no_room_of_others() -> None:
    giant = Claim(amounts(cpu="50"))

    assert estimate(node("3")).without(giant, 5).fits(CPU) == 3


@given(
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 12)), min_size=1, max_size=12),
    st.integers(1, 4000),
    st.integers(0, 60),
)
def test_what_is_taken_is_missing_and_nothing_else(
    nodes: list[tuple[int, int]], millis: int, replicas: int
) -> None:
    claim = Claim(amounts(cpu=f"{millis}m"))
    before = estimate(*(node(f"{cpu}m", pods=str(pods)) for cpu, pods in nodes))

    after = before.without(claim, replicas)

    assert after.fits(claim) == max(before.fits(claim) - replicas, 0)
    count = sum(room.count for group in after.groups for room in group.rooms)
    assert count == len(nodes)


def test_quotas_of_the_namespace_are_the_limit_where_there_is_room() -> None:
    quota = write_quota(
        {
            "metadata": {"namespace": "shop", "name": "compute"},
            "status": {
                "hard": {"requests.cpu": "5", "pods": "50", "requests.storage": "1Gi"},
                "used": {"requests.cpu": "2"},
            },
        }
    )
    assert quota is not None
    assert quota["free"] == {"pods": "50", "requests.cpu": "3"}
    limited = estimate(node("64"), quotas=[quota])

    assert limited.fits(CPU) == 3
    assert limited.fits(Claim(CPU.each, namespace="other")) == 64
    assert limited.without(CPU, 2).fits(CPU) == 1
    assert limited.fits(Claim(namespace="shop")) == 50


def test_a_quota_for_a_class_limits_that_class_alone() -> None:
    quota: Object = {
        "metadata": {"namespace": "shop", "name": "gold"},
        "spec": {
            "hard": {"cpu": "1"},
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
                ]
            },
        },
    }
    told = write_quota(quota)
    assert told is not None
    limited = estimate(node("64"), quotas=[told])
    requirements = {"resourceRequest": {"cpu": "1"}, "priorityClassName": "gold"}

    assert limited.fits(CPU) == 64
    assert limited.fits(read_claim(requirements, "shop")) == 1


def test_a_quota_that_says_nothing_of_pods_is_not_told() -> None:
    hard = {"count/secrets": "3", "limits.cpu": "2", "requests.storage": "1Gi"}

    assert (
        write_quota({"metadata": {"namespace": "a", "name": "b"}, "spec": {"hard": hard}}) is None
    )


def test_a_large_cluster_is_told_in_few_words_and_never_as_more_than_it_is() -> None:
    nodes: list[NodeGroup] = []
    for each in range(5000):
        host, zone = f"node-{each}", f"z{each % 3}"
        nodes.append(node(f"{1000 + 7 * each}m", str(each % 97 + 1), host=host, zone=zone))
    exact = sum(room.count * room.fits(CPU) for each in nodes for room in each.rooms)

    told = estimate(*nodes)

    assert told.omitted == {"host"}
    assert len(told.groups) <= MOST_GROUPS
    assert sum(len(group.rooms) for group in told.groups) <= MOST_ROOMS
    assert exact * 0.6 <= told.fits(CPU) <= exact
    in_zone = Claim(CPU.each, node_selector={"zone": "z1", "host": "node-4"})
    assert told.fits(in_zone) <= exact / 2  # the name is not known, and the zone is
    assert told.fits(Claim(CPU.each, node_selector={"zone": "z9"})) == 0


def test_nodes_that_have_nothing_in_common_are_not_guessed_at() -> None:
    nodes = [node("1", taint={"key": f"k{n}", "effect": "NoSchedule"}) for n in range(50)]

    assert estimate_nodes(nodes) is None


@pytest.mark.parametrize(
    ("count", "labels_of"),
    [
        (400, lambda n: {f"own-{n}-{each}": "" for each in range(100)}),
        (5000, lambda n: {f"l{each}": str(n % 20) for each in range(120)}),
        (400, lambda n: {f"l{each}": str(n % 2) for each in range(1000)}),
    ],
    ids=["labels of each node's own", "labels with many values", "thousands of labels"],
)
def test_what_nodes_are_labelled_with_holds_up_nobody(
    count: int, labels_of: Callable[[int], dict[str, str]]
) -> None:
    """Whoever reports on many clusters reads what each of them makes up: no step is quadratic."""
    room = NodeRoom(1, amounts(cpu="1", pods="110"))
    nodes = [NodeGroup(labels_of(number), (), (room,)) for number in range(count)]
    started = time.process_time()

    estimate_nodes(nodes)

    assert time.process_time() - started < 5


def test_of_too_many_rooms_that_somebody_wrote_few_are_counted_with() -> None:
    rooms = [{"count": 1, "free": {"cpu": f"{n}m", "pods": "9"}} for n in range(1, 400)]
    written = {"nodes": [{"labels": {"zone": str(n)}, "rooms": rooms} for n in range(20)]}

    read = read_estimate(written)

    assert read is not None
    assert sum(len(group.rooms) for group in read.groups) <= MOST_ROOMS


def test_the_same_cluster_is_the_same_text_whatever_the_order_of_its_nodes() -> None:
    nodes = [node(f"{each % 4}", zone=f"z{each % 2}", os="linux") for each in range(1, 20)]
    one, other = estimate_nodes(nodes), estimate_nodes(nodes[::-1])

    assert one is not None
    assert other is not None
    assert write_estimate(one) == write_estimate(other)
    assert write_estimate(one)["labels"] == {"os": "linux"}


def test_nonsense_says_nothing() -> None:
    rooms = [{"count": 1, "free": {"cpu": "a lot"}}]

    assert read_estimate({"nodes": [{"rooms": rooms}]}) is None
    assert read_estimate({"nodes": [{"rooms": [{"free": {}}]}]}) is None
    assert read_estimate({"nodes": ["west"]}) is None
    assert read_estimate({"nodes": [], "quotas": [{"name": "no namespace"}]}) is None
