import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides.images import Image, overridden_image, read_image

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("nginx", Image("", "nginx")),
        ("nginx:1.27", Image("", "nginx", "1.27")),
        ("team/web:1", Image("", "team/web", "1")),
        ("registry.example/web", Image("registry.example", "web")),
        ("localhost/web", Image("localhost", "web")),
        ("registry:5000/team/web:1", Image("registry:5000", "team/web", "1")),
        (f"web@{DIGEST}", Image("", "web", digest=DIGEST)),
        (f"registry.example/web:1@{DIGEST}", Image("registry.example", "web", "1", DIGEST)),
    ],
)
def test_an_image_reference_is_read_and_written_back(text: str, image: Image) -> None:
    assert read_image(text) == image
    assert str(image) == text


@pytest.mark.parametrize(
    ("image", "component", "operator", "value", "wanted"),
    [
        ("nginx:1", "Registry", "add", "mirror.example", "mirror.example/nginx:1"),
        ("a.example/nginx:1", "Registry", "add", ".cn", "a.example.cn/nginx:1"),
        ("a.example/nginx:1", "Registry", "replace", "b.example", "b.example/nginx:1"),
        ("a.example/nginx:1", "Registry", "remove", "", "nginx:1"),
        ("nginx:1", "Repository", "add", "/alpine", "nginx/alpine:1"),
        ("a.example/nginx:1", "Repository", "replace", "team/web", "a.example/team/web:1"),
        ("nginx", "Tag", "add", "1.27", "nginx:1.27"),
        ("nginx:1", "Tag", "add", "-alpine", "nginx:1-alpine"),
        ("nginx:1", "Tag", "replace", "2", "nginx:2"),
        ("nginx:1", "Tag", "replace", DIGEST, f"nginx@{DIGEST}"),
        (f"nginx@{DIGEST}", "Tag", "replace", "2", "nginx:2"),
        (f"nginx:1@{DIGEST}", "Tag", "replace", "2", "nginx:2"),
        ("nginx:1", "Tag", "remove", "", "nginx"),
        (f"nginx@{DIGEST}", "Tag", "remove", "", "nginx"),
    ],
)
def test_every_component_can_be_added_to_replaced_and_removed(
    image: str, component: str, operator: str, value: str, wanted: str
) -> None:
    assert overridden_image(image, component, operator, value) == wanted


@pytest.mark.parametrize(
    ("image", "component", "operator", "value"),
    [
        ("nginx", "Repository", "remove", ""),
        ("nginx", "Tag", "add", "no tag at all"),
        ("", "Tag", "replace", "1"),
        (":1", "Tag", "replace", "1"),
    ],
)
def test_what_would_be_no_image_is_refused(
    image: str, component: str, operator: str, value: str
) -> None:
    with pytest.raises(OverrideFailed):
        overridden_image(image, component, operator, value)


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,9}(\.example)(:[0-9]{2,4})?", fullmatch=True),
    st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,2}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_replacing_the_registry_touches_nothing_else(host: str, path: str, tag: str) -> None:
    changed = overridden_image(f"{host}/{path}:{tag}", "Registry", "replace", "b.example")

    assert changed == f"b.example/{path}:{tag}"
