"""The page at both ends: from a kubeconfig to a browser, from a policy to what it would do."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from clusterspace.apiserver.http.users import User, hub_impersonation
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import (
    BadRequest,
    ClusterError,
    Forbidden,
    NotFound,
    Unauthorized,
    UnusableConfiguration,
)
from clusterspace.fleet.page.browsers import CODE_PATH, PAGE
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import open_client
from clusterspace.roots.simulation import simulate_files

_MOST_SIMULATED: Final = 500
"""Workloads of one question to a server that has others to answer; the command has no bound."""
_SECONDS: Final = 45.0
_BUSY_SECONDS: Final = 5


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


class Simulations:
    """Says what policies would do, to people at the page: one question at a time.

    The hub is asked as whoever asks, so that nobody learns what they may not read, and objects
    are stored by dry runs alone.
    """

    def __init__(self, read_hub: Callable[[], ConnectionSettings]) -> None:
        self._read_hub = read_hub
        self._gate = asyncio.Lock()

    async def __call__(self, user: User, objects: Sequence[Object]) -> list[Any]:
        """Return the previews of workloads; an ApiError says what is wrong with the objects."""
        if self._gate.locked():
            raise statuses.too_many_requests(_BUSY_SECONDS)
        async with self._gate:
            own = self._read_hub()
            identity = replace(own.identity, impersonation=hub_impersonation(user))
            try:
                async with asyncio.timeout(_SECONDS):
                    asked = replace(own, identity=identity)
                    found = await simulate_files(objects, asked, most=_MOST_SIMULATED)
            except UnusableConfiguration as error:
                raise BadRequest(str(error)) from error
            except ClusterError as error:
                raise statuses.unavailable(str(error)) from error
            except TimeoutError as error:
                raise statuses.unavailable(
                    f"the hub took more than {_SECONDS:g} s: try `clusterspace simulate`"
                ) from error
        return [msgspec.to_builtins(each) for each in found]
