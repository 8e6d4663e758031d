"""/openapi/v2: a document that describes nothing, because kubectl will not go on without one.

Clients that check manifests themselves use version 3 of the format; kubectl still asks for
version 2 when a file holds a `kind: List`, or a kind nobody serves. An empty document lets it go
on, and the server checks every object as strictly as it is asked to.
"""

from typing import Final

from clusterspace import __version__
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import JSON, read_accept
from clusterspace.apiserver.http.responses import headers_for, value_response

_ASKED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_ANSWERED: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE: Final = "Clusterspace"


def answer_openapi_v2(context: RequestContext) -> Response:
    """Answer GET /openapi/v2, in protobuf for those who ask for it."""
    ranges = [each.type for each in read_accept(context.header("accept"))]
    if JSON not in ranges and _ASKED in ranges:
        return Response(200, headers_for(context, _ANSWERED), _protobuf())
    body = {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": __version__},
        "paths": {},
        "definitions": {},
    }
    return value_response(context, 200, body)


def _protobuf() -> bytes:
    """Return the same document as a protobuf message: 1 swagger, 2 info {1 title, 2 version}."""
    info = _text_field(1, _TITLE.encode()) + _text_field(2, __version__.encode())
    return _text_field(1, b"2.0") + _text_field(2, info)


def _text_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content
