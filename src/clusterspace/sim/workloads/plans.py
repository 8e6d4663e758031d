"""What a workload's decision may ask for."""

from dataclasses import dataclass
from typing import Any

from clusterspace.kube.objects import Object

MOST_AT_ONCE = 500
"""How many pods one step creates or deletes; the next step goes on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for one workload, carried out in the order of the fields."""

    create: tuple[Object, ...] = ()
    """New objects; one whose name is taken is left as it is."""
    update: tuple[Object, ...] = ()
    """Objects to replace at the version they carry."""
    delete: tuple[Object, ...] = ()
    status: Object | None = None
    """The workload with its new status; None when it says so already."""
    again_after: float | None = None
    """When time alone will change the answer."""


def with_status(workload: Object, status: Object) -> Object | None:
    """Return the workload with this status, or None when it says the same already.

    A count of zero and one that is left out are the same, here as in Kubernetes.
    """
    said = {key: value for key, value in status.items() if value is not None}
    held: Object = workload.get("status") or {}
    return None if _plain(said) == _plain(held) else {**workload, "status": said}


def _plain(status: Object) -> Object:
    return {key: value for key, value in status.items() if value not in _NOTHING}


_NOTHING: tuple[Any, ...] = (None, 0, "", [], {})
