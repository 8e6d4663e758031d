import pytest

from clusterspace.client.places import Place, place_of
from clusterspace.errors import MalformedObject
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, pod


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (Place(PODS), "/api/v1/pods"),
        (Place(PODS, "default"), "/api/v1/namespaces/default/pods"),
        (Place(PODS, "default", "web"), "/api/v1/namespaces/default/pods/web"),
        (
            Place(PODS, "default", "web").part("log"),
            "/api/v1/namespaces/default/pods/web/log",
        ),
        (Place(DEPLOYMENTS, "a", "b"), "/apis/apps/v1/namespaces/a/deployments/b"),
        (Place(NAMESPACES, name="a"), "/api/v1/namespaces/a"),
        (Place(PODS, "n", "a/../b?c"), "/api/v1/namespaces/n/pods/a%2F..%2Fb%3Fc"),
    ],
)
def test_a_place_has_a_path(place: Place, path: str):
    assert place.path == path


@pytest.mark.parametrize("place", [Place(PODS, ".."), Place(PODS, "default", ".")])
def test_no_name_walks_up_the_path(place: Place):
    with pytest.raises(MalformedObject):
        _ = place.path


def test_a_place_and_its_key_lead_to_each_other():
    place = place_of(PODS, pod("web"))

    assert place.key == "default/web"
    assert Place(PODS).at("default/web") == place
    assert Place(NAMESPACES).at("default") == Place(NAMESPACES, name="default")
    assert place.collection == Place(PODS, "default")
    assert str(place) == "pods default/web"
