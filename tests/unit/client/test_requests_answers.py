import errno
import ssl

import aiohttp
import msgspec
import pytest
from aiohttp.client_reqrep import ConnectionKey

from clusterspace.client.requests import Answer, failure_of, transport_error
from clusterspace.errors import (
    ApiError,
    ClusterMisbehaved,
    ClusterUnreachable,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    NotServed,
    ServiceUnavailable,
)


def status(code: int, reason: str, **details: object) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}
    return Answer(code, {"content-type": "application/json"}, msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (status(403, "Forbidden"), Forbidden),
        (status(404, "NotFound", name="web"), NotFound),
        (status(409, "Conflict"), Conflict),
        (status(410, "Expired"), Expired),
        (status(410, "Gone"), Expired),
    ],
)
def test_a_status_becomes_the_error_it_tells_of_and_names_the_cluster(
    answer: Answer, error_class: type[ApiError]
):
    error = failure_of("west", answer)

    assert isinstance(error, error_class)
    assert error.cluster == "west"


@pytest.mark.parametrize(
    "answer",
    [
        status(404, "NotFound"),
        Answer(404, {"content-type": "text/plain"}, b"404 page not found\n"),
    ],
)
def test_a_resource_that_is_not_served_is_never_a_missing_object(answer: Answer):
    error = failure_of("west", answer)

    assert isinstance(error, NotServed)
    assert not isinstance(error, NotFound)
    assert error.code == 404


@pytest.mark.parametrize(
    "text", [b"service unavailable\n", b"error trying to reach service: dial tcp: refused\n"]
)
def test_an_api_whose_server_is_away_is_to_be_tried_again(text: bytes):
    error = failure_of("west", Answer(503, {"content-type": "text/plain; charset=utf-8"}, text))

    assert isinstance(error, ServiceUnavailable)
    assert error.cluster == "west"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(503, {"content-type": "text/html"}, b"service unavailable"),
        Answer(503, {"content-type": "text/plain"}, b"no healthy upstream"),
        Answer(404, {"content-type": "text/html"}, b"<html>404</html>"),
        Answer(403, {}, b""),
        Answer(500, {}, b'"Status"'),
        Answer(502, {}, b'{"kind": "Pod"}'),
        Answer(301, {"location": "http://elsewhere"}, b""),
    ],
)
def test_what_no_kubernetes_api_says_is_misbehaviour_with_its_code(answer: Answer):
    error = failure_of("west", answer)

    assert isinstance(error, ClusterMisbehaved)
    assert error.code == answer.status
    assert error.cluster == "west"


def test_a_success_is_no_failure():
    assert failure_of("west", Answer(200, {}, b"")) is None
    assert failure_of("west", Answer(201, {}, b"")) is None


def test_a_broken_connection_may_have_had_an_effect():
    error = transport_error("west", ConnectionResetError())

    assert isinstance(error, ClusterUnreachable)
    assert error.was_sent


ADDRESS = ("10.1.2.3", 6443)
KEY = ConnectionKey(*ADDRESS, True, True, None, None, None, None)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (OSError(errno.ECONNREFUSED, f"Connect call failed {ADDRESS}"), "refused the connection"),
        (OSError(errno.EHOSTUNREACH, f"Connect call failed {ADDRESS}"), "no route leads to it"),
        (OSError(errno.ENETDOWN, f"{ADDRESS}"), "no connection can be made: Network is down"),
        (OSError(f"Multiple exceptions: {ADDRESS}"), "no connection can be made"),
    ],
)
def test_a_connection_that_fails_is_told_without_the_address(raised: OSError, said: str) -> None:
    error = transport_error("west", aiohttp.ClientConnectorError(KEY, raised))

    assert isinstance(error, ClusterUnreachable)
    assert (error.why, error.was_sent) == (said, False)


def test_a_certificate_for_another_address_is_told_without_either() -> None:
    mismatch = ssl.SSLCertVerificationError()
    mismatch.verify_message = "IP address mismatch, certificate is not valid for '10.1.2.3'."
    error = transport_error("west", aiohttp.ClientConnectorCertificateError(KEY, mismatch))

    assert error.why == "its certificate is not trusted: IP address mismatch"


def test_where_a_redirect_leads_is_not_told() -> None:
    answer = Answer(302, {"location": "https://10.1.2.3/login?token=x"}, b"")

    error = failure_of("west", answer)

    assert isinstance(error, ClusterMisbehaved)
    assert error.why == "answered 302, a redirect, and those are neither followed nor passed on"
