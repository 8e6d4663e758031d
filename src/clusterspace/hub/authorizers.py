"""Who may do what, before roles are asked: administrators everything, everybody a few paths."""

from typing import Final

from clusterspace.serving.middleware.authorize import Decision
from clusterspace.serving.request_info import RequestInfo
from clusterspace.serving.users import AUTHENTICATED, MASTERS, User

_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_DISCOVERY: Final = ("/api", "/apis", "/openapi")

DENIED: Final = Decision(allowed=False)
ALLOWED: Final = Decision(allowed=True)


class GroupAuthorizer:
    """Allows `system:masters` everything; what is not said here is refused."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        if MASTERS in user.groups:
            return ALLOWED
        if info.is_resource or info.verb != "get":
            return DENIED
        if _is_below(info.path, _PUBLIC):
            return ALLOWED
        if AUTHENTICATED in user.groups and _is_below(info.path, _DISCOVERY):
            return ALLOWED
        return DENIED


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
