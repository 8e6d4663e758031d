"""The way from a kubeconfig to the page: a one-time code, in an address for a browser."""

from urllib.parse import quote, urlsplit

import msgspec

from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import Forbidden, NotFound, Unauthorized
from clusterspace.fleet.page.browsers import CODE_PATH, PAGE
from clusterspace.roots.clients import open_client


class _Issued(msgspec.Struct):
    code: str


async def login_address(settings: ConnectionSettings) -> str:
    """Return an address that logs one browser in, once, as whom these settings name.

    The code is behind the `#`: browsers send that part to nobody, and no log has it.
    """
    async with open_client(settings) as fleet:
        answer = await fleet.connection.exchange(ApiRequest("POST", CODE_PATH))
    where = urlsplit(settings.server)
    if answer.status == 401:
        raise Unauthorized(f"{where.netloc} does not know who this kubeconfig is for")
    if answer.status in (403, 404, 405):
        raise NotFound(
            f"there is no page at {where.netloc}: its fleet API server is started with --ui=false, "
            "or this is the kubeconfig of another server (--context names one)"
        )
    if answer.status != 200:
        raise Forbidden(f"{where.netloc} gave no code to log in with: HTTP {answer.status}")
    code = msgspec.json.decode(answer.body, type=_Issued).code
    return f"https://{where.netloc}{PAGE}/#code={quote(code)}"
