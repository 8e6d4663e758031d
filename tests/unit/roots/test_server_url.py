"""Where a server says it is reached."""

import pytest

from clusterspace.roots.installation import server_url


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "https://127.0.0.1:5443"),
        ("hub.example", "https://hub.example:5443"),
        ("0.0.0.0", "https://127.0.0.1:5443"),
        ("::1", "https://[::1]:5443"),
    ],
)
def test_a_server_is_reached_where_a_client_can_go(host, expected):
    assert server_url(host, 5443) == expected
