"""What every policy carries."""

from random import Random

from tests.unit.fleet.propagation.policy_objects import config_maps, policy

from clusterspace.apis import stamps
from clusterspace.fleet.propagation.detector import marked
from clusterspace.kube.objects import labels_of, metadata_of


def test_a_policy_without_id_and_finalizer_gets_both_once() -> None:
    own = marked(policy("a", "shop", config_maps()), "shop", Random(1))
    wide = marked(policy("a", "", config_maps()), "", Random(1))

    assert set(labels_of(own)) == {stamps.POLICY_ID}
    assert metadata_of(own)["finalizers"] == ["karmada.io/propagation-policy-controller"]
    assert set(labels_of(wide)) == {stamps.CLUSTER_POLICY_ID}
    assert metadata_of(wide)["finalizers"] == ["karmada.io/cluster-propagation-policy-controller"]
    assert marked(own, "shop", Random(2)) == own
