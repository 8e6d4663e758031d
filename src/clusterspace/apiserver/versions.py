"""resourceVersions as clients send them: revisions, or text that is refused."""

from typing import Final

from clusterspace.kube import statuses

_LARGEST: Final = 2**64 - 1


def version_problem(text: str) -> str:
    """Return why a text is no resourceVersion, in Kubernetes' words; empty when it is one."""
    shown = statuses.quoted(text[:64])
    if not text.isascii() or not text.isdigit():
        return f"strconv.ParseUint: parsing {shown}: invalid syntax"
    if len(text) > len(str(_LARGEST)) or int(text) > _LARGEST:
        return f"strconv.ParseUint: parsing {shown}: value out of range"
    return ""
