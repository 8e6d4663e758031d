import pytest

from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.errors import MalformedObject
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, pod


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (ResourcePath(PODS), "/api/v1/pods"),
        (ResourcePath(PODS, "default"), "/api/v1/namespaces/default/pods"),
        (ResourcePath(PODS, "default", "web"), "/api/v1/namespaces/default/pods/web"),
        (
            ResourcePath(PODS, "default", "web").with_subresource("log"),
            "/api/v1/namespaces/default/pods/web/log",
        ),
        (ResourcePath(DEPLOYMENTS, "a", "b"), "/apis/apps/v1/namespaces/a/deployments/b"),
        (ResourcePath(NAMESPACES, name="a"), "/api/v1/namespaces/a"),
        (ResourcePath(PODS, "n", "a/../b?c"), "/api/v1/namespaces/n/pods/a%2F..%2Fb%3Fc"),
    ],
)
def test_a_place_has_a_path(place: ResourcePath, path: str):
    assert place.path == path


@pytest.mark.parametrize("place", [ResourcePath(PODS, ".."), ResourcePath(PODS, "default", ".")])
def test_no_name_walks_up_the_path(place: ResourcePath):
    with pytest.raises(MalformedObject):
        _ = place.path


def test_a_place_and_its_key_lead_to_each_other():
    place = resource_path_of(PODS, pod("web"))

    assert place.key == "default/web"
    assert ResourcePath(PODS).at("default/web") == place
    assert ResourcePath(NAMESPACES).at("default") == ResourcePath(NAMESPACES, name="default")
    assert place.collection == ResourcePath(PODS, "default")
    assert str(place) == "pods default/web"
