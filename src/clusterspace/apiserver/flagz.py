"""`/flagz`: the settings a server was started with, one `name=value` a line, for who may read it.

kube-apiserver has the path, too. Only what says how safe the server is, by the names of the flags:
files are named and not shown, and nothing in here is a secret.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import text_response

PATH: Final = "/flagz"


class Flagz:
    """Answers the path."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        self._text = "".join(f"{name}={value}\n" for name, value in sorted(flags.items()))

    def answer(self, context: RequestContext) -> Response | None:
        """Return the flags; None for any other path."""
        return text_response(context, 200, self._text) if context.info.path == PATH else None


def read_flags(text: str) -> dict[str, str]:
    """Read what a server answered."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}
