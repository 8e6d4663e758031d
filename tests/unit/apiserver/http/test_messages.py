import msgspec
import pytest

from clusterspace.apiserver.http.messages import (
    Headers,
    Response,
    encode_head,
    encode_response,
    refusal,
)
from clusterspace.errors import HttpViolation


def test_header_names_are_found_in_any_case() -> None:
    headers = Headers([("host", "hub"), ("x", "1"), ("x", "2")])

    assert (headers.get("X"), headers.get_all("X"), headers.get("Y")) == ("1", ["1", "2"], None)
    assert "HOST" in headers
    assert next(iter(headers)) == ("host", "hub")
    assert len(headers) == 3


def test_a_body_in_pieces_is_not_joined() -> None:
    pieces = [b'{"items":[', b"{}", b"]}"]

    head, *body = encode_response(Response(200, (), pieces), b"")

    assert head.endswith(b"Content-Length: 14\r\n\r\n")
    assert body == pieces


def test_to_head_only_the_headers_are_sent() -> None:
    response = Response(200, (), b"text")

    assert encode_response(response, b"", is_head=True) == encode_response(response, b"")[:1]


@pytest.mark.parametrize("status", [0, 99, 100, 101, 199, 600, 1000])
def test_only_an_answer_has_a_status_that_can_be_sent(status: int) -> None:
    with pytest.raises(ValueError, match="not the status of an answer"):
        encode_head(status, (), b"")


def test_a_status_without_a_name_is_passed_on() -> None:
    assert encode_head(599, (), b"") == b"HTTP/1.1 599 \r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\rb", "a\0b"])
def test_a_header_value_cannot_become_a_second_header(value: str) -> None:
    with pytest.raises(ValueError, match="line break or NUL"):
        encode_head(200, [("Warning", value)], b"")


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "CONNECTION", "Date"])
def test_handlers_have_no_say_in_framing(name: str) -> None:
    with pytest.raises(ValueError, match="the server itself sets"):
        encode_head(200, [(name, "1")], b"")


def test_a_refusal_is_a_status_body() -> None:
    response = refusal(HttpViolation(431, "too many headers"))

    assert isinstance(response.body, bytes)
    assert response.status == 431
    assert msgspec.json.decode(response.body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too many headers",
        "reason": "BadRequest",
        "code": 431,
    }
