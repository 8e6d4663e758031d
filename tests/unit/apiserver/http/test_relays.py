"""What goes along when a call is passed on, and what stays."""

from clusterspace.apiserver.http.responses import headers_to_pass


def test_credentials_and_claims_stay_here():
    pairs = [
        ("accept", "application/json"),
        ("authorization", "Bearer secret"),
        ("impersonate-user", "root"),
        ("x-remote-user", "root"),
        ("cookie", "a=b"),
        ("host", "fleet"),
        ("connection", "close"),
        ("content-length", "3"),
        ("kubectl-session", "1"),
    ]

    assert headers_to_pass(pairs) == (("accept", "application/json"), ("kubectl-session", "1"))


def test_a_token_that_browsers_hide_in_a_protocol_stays_here():
    hidden = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    pairs = [
        ("sec-websocket-protocol", f"v5.channel.k8s.io, {hidden}"),
        ("sec-websocket-protocol", hidden),
    ]

    assert headers_to_pass(pairs) == (("sec-websocket-protocol", "v5.channel.k8s.io"),)
