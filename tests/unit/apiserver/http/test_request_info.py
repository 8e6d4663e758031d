"""What a request asks for, read from its method and URL alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.http.request_info import RequestInfo, reach_verb, read_request
from clusterspace.errors import BadRequest


def asked(method: str, url: str) -> RequestInfo:
    path, _, query = url.partition("?")
    return read_request(method, path, query)


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", ("get", "", "v1", "a", "pods", "p", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=1", ("watch", "", "v1", "a", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=0", ("list", "", "v1", "a", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods", ("watch", "", "v1", "a", "pods", "", "")),
        ("HEAD", "/api/v1/namespaces/a/pods?watch=1", ("list", "", "v1", "a", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a", ("get", "", "v1", "a", "namespaces", "a", "")),
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
        (
            "PUT",
            "/api/v1/namespaces/a/finalize",
            ("update", "", "v1", "a", "namespaces", "a", "finalize"),
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/a/deployments",
            ("create", "apps", "v1", "a", "deployments", "", ""),
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/status",
            ("patch", "apps", "v1", "a", "deployments", "d", "status"),
        ),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            ("deletecollection", "apps", "v1", "a", "deployments", "", ""),
        ),
        ("DELETE", "/api/v1/nodes/n", ("delete", "", "v1", "", "nodes", "n", "")),
    ],
)
def test_a_resource_request_is_read(method: str, url: str, expected: tuple[str, ...]) -> None:
    info = asked(method, url)

    found = (info.verb, info.group, info.version, info.namespace, info.resource, info.name)
    assert info.is_resource
    assert (*found, info.subresource) == expected


@pytest.mark.parametrize("url", ["/", "/version", "/api", "/apis", "/apis/apps", "/apis/apps/v1"])
def test_other_paths_are_no_resource_requests(url: str) -> None:
    info = asked("GET", url)

    assert not info.is_resource
    assert info.verb == "get"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/../secrets",
        "/api/v1/%2e%2e/secrets",
        "/api/v1/namespaces/a%2fb/pods",
        "/api/v1/namespaces/a%252fb/pods",
        "/api//v1/pods",
        "/api/v1/pods/%00",
        "/api/v1/pods/a%0ab",
        "/api/v1/pods/%c0%ae",
        "api/v1/pods",
    ],
)
def test_a_path_that_could_mean_two_things_is_refused(path: str) -> None:
    with pytest.raises(BadRequest):
        asked("GET", path)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_url_escapes_as_anything_but_a_bad_request(path: str, query: str) -> None:
    try:
        info = read_request("GET", "/" + path, query)
    except BadRequest:
        return
    assert ".." not in info.path.split("/")


FITTING = {
    "/api/v1/pods": "both",
    "/api/v1/pods/p": "cluster",
    "/api/v1/namespaces/a/pods": "namespaced",
    "/api/v1/namespaces/a/pods/p/status": "namespaced",
    "/api/v1/watch/namespaces/a/pods/p": "namespaced",
    "/api/v1/watch/pods/p": "cluster",
    "/api/v1/namespaces": "both",
    "/api/v1/namespaces/a": "cluster",
    "/api/v1/namespaces/a/status": "cluster",
    "/api/v1/watch/namespaces/a": "cluster",
    "/api/v1/namespaces/a/namespaces": "namespaced",
    "/api/v1/namespaces/a/namespaces/b": "namespaced",
    "/api/v1/namespaces/a/namespaces/a": "namespaced",
    "/api/v1/namespaces/a/status/b": "neither",
    "/apis/example.com/v1/namespaces/a": "neither",
    "/apis/example.com/v1/namespaces/a/status": "neither",
    "/apis/example.com/v1/namespaces/a/namespaces/b": "namespaced",
    "/api/v1/namespaces/a/pods/p/status/more": "neither",
    "/api/v1/namespaces/a/pods/p/proxy/more": "namespaced",
    "/api/v1/nodes/n/proxy/more": "cluster",
}


@pytest.mark.parametrize(("path", "scope"), FITTING.items())
def test_a_path_fits_the_scope_whose_objects_it_can_name(path: str, scope: str) -> None:
    info = asked("GET", path)

    assert info.fits_scope(namespaced=True) is (scope in ("namespaced", "both"))
    assert info.fits_scope(namespaced=False) is (scope in ("cluster", "both"))


@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
def test_a_stream_is_a_create_whatever_protocol_it_begins_with(part: str) -> None:
    path = f"/api/v1/namespaces/a/pods/p/{part}"

    assert [asked(method, path).verb for method in ("GET", "HEAD", "POST")] == ["create"] * 3
    assert asked("DELETE", path).verb == "delete"


@pytest.mark.parametrize(
    ("method", "path", "is_upgrade", "verb"),
    [
        ("GET", "/api/v1/pods", False, "get"),
        ("GET", "/api/v1/pods?watch=1", False, "get"),
        ("PATCH", "/api/v1/nodes/n", False, "patch"),
        ("GET", "/api/v1/namespaces/a/pods/p/log", False, "get"),
        ("GET", "/api/v1/namespaces/a/pods/p/exec", False, "create"),
        ("DELETE", "/api/v1/namespaces/a/services/s/proxy/x", False, "create"),
        ("GET", "/apis/example.com/v1/namespaces/a/machines/m/console", True, "create"),
        ("GET", "/version", True, "create"),
    ],
)
def test_what_leads_into_a_cluster_takes_the_right_to_create(
    method: str, path: str, is_upgrade: bool, verb: str
) -> None:
    assert reach_verb(method, asked(method, path), is_upgrade=is_upgrade) == verb
