"""`kubectl get clusters` shows what it shows of Karmada."""

from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.builtins.printers.registry import find_fleet_printer
from clusterspace.kube.objects import Object, with_metadata, with_value

NOW = 1_700_000_120.0
CREATED = "2023-11-14T22:13:20Z"
NARROW = ["NAME", "VERSION", "MODE", "READY", "AGE"]
WIDE = ["ZONES", "REGION", "PROVIDER", "API-ENDPOINT", "PROXY-URL"]


def cells_of(held: Object) -> list[object]:
    found = find_fleet_printer("cluster.karmada.io", "Cluster")
    assert found is not None
    return found.cells_of(with_metadata(held, creationTimestamp=CREATED), NOW)


def test_the_columns_are_karmadas() -> None:
    found = find_fleet_printer("cluster.karmada.io", "Cluster")

    assert found is not None
    columns = [(each.name.upper(), each.priority) for each in found.columns]
    assert columns == [*((name, 0) for name in NARROW), *((name, 1) for name in WIDE)]


def test_a_cluster_nobody_has_heard_of_is_unknown() -> None:
    assert cells_of(cluster())[:5] == ["west", "", "Push", "Unknown", "2m"]


def test_what_is_known_is_shown() -> None:
    held = cluster(ready="False", mode="Pull", kubernetesVersion="v1.35.0")
    placed = with_value(held, ["a", "b"], "spec", "zones")

    assert cells_of(placed) == [
        "west", "v1.35.0", "Pull", "False", "2m", "a,b", "<none>", "<none>", "", "<none>",
    ]  # fmt: skip


def test_other_kinds_are_shown_as_their_definition_says() -> None:
    assert find_fleet_printer("cluster.karmada.io", "Other") is None
