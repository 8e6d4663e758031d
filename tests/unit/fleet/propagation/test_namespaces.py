import json
from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.affinities import Traits
from clusterspace.apis.works import manifests_of
from clusterspace.client.resources import decode_object
from clusterspace.controllers.controller import Request
from clusterspace.controllers.informers import Update
from clusterspace.fleet.propagation.namespaces import (
    namespace_of_strayed,
    outline_for_namespace,
)
from clusterspace.fleet.propagation.templates import is_on_every_cluster
from clusterspace.fleet.propagation.works.rendering import new_work
from clusterspace.kube.objects import Object, annotations_of, labels_of, with_metadata
from clusterspace.testing.builders import namespace

NORTH = Traits("north", {})


def shop(**metadata: Any) -> Object:
    return with_metadata(namespace("shop"), uid="uid-of-shop", **metadata)


def work_of(held: Object, *policies: Object) -> Object:
    return new_work(outline_for_namespace(held, NORTH, policies), "work-id")


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "kube-system",
        "kube-anything",
        "karmada-system",
        "karmada-cluster",
        "karmada-es-a",
    ],
)
def test_namespaces_that_clusters_have_or_the_control_plane_needs_stay_here(name: str) -> None:
    assert not is_on_every_cluster(namespace(name))


def test_all_others_go_unless_told_to_stay_or_on_their_way_out() -> None:
    assert is_on_every_cluster(shop())
    assert is_on_every_cluster(shop(labels={stamps.SKIP_AUTO_PROPAGATION: "false"}))
    assert not is_on_every_cluster(shop(labels={stamps.SKIP_AUTO_PROPAGATION: "true"}))
    assert not is_on_every_cluster(shop(deletionTimestamp="2026-01-01T00:00:00Z"))


def test_the_work_of_a_namespace_goes_with_it_and_leaves_conflicts_to_the_member() -> None:
    work = work_of(shop())

    (owner,) = work["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Namespace", "uid-of-shop", True)
    (manifest,) = manifests_of(work)
    assert stamps.CONFLICT_RESOLUTION not in annotations_of(manifest)
    assert "annotations" not in work["metadata"]
    assert set(work["spec"]) == {"workload"}


def test_overrides_for_every_namespace_apply_to_namespaces() -> None:
    overriders = {"labelsOverrider": [{"operator": "add", "value": {"where": "north"}}]}
    policy = {"metadata": {"name": "p"}, "spec": {"overrideRules": [{"overriders": overriders}]}}

    work = work_of(shop(), policy)

    assert labels_of(manifests_of(work)[0])["where"] == "north"
    assert stamps.APPLIED_CLUSTER_OVERRIDES in annotations_of(work)


def test_a_work_that_is_gone_or_changed_brings_its_namespace_back_to_mind() -> None:
    raw = json.dumps(work_of(shop())).encode()
    changed = json.dumps({**decode_object(raw), "spec": {}}).encode()
    reported = json.dumps({**decode_object(raw), "status": {}}).encode()

    assert list(namespace_of_strayed(Update("k", raw, None))) == [Request("shop")]
    assert list(namespace_of_strayed(Update("k", raw, changed))) == [Request("shop")]
    assert list(namespace_of_strayed(Update("k", raw, reported))) == []
    assert list(namespace_of_strayed(Update("k", None, raw))) == []
