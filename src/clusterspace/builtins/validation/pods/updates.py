"""The rules of changing a pod: its images, a few bounds, and nothing else."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.rules import struct_in, structs_in
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, identity_of

_MUTABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_FROZEN: Final = f"pod updates may not change fields other than {','.join(_MUTABLE)}\n"


def check_pod_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a pod."""
    spec, held = struct_in(new, "spec"), struct_in(old, "spec")
    for field in ("containers", "initContainers"):
        if len(structs_in(spec, field)) != len(structs_in(held, field)):
            yield causes.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from _check_deadline(spec.get("activeDeadlineSeconds"), held.get("activeDeadlineSeconds"))
    yield from _check_tolerations(spec, held)
    yield from _check_gates(spec, held)
    if _frozen_part(spec, held) != _frozen_part(held, held):
        yield causes.forbidden("spec", _FROZEN)


def _check_deadline(wanted: int | None, held: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if held is None:
        return
    if wanted is None:
        why = "must not update from a positive integer to nil value"
        yield causes.invalid(path, wanted, why)
    elif wanted > held:
        yield causes.invalid(path, wanted, "must be less than or equal to previous value")


def _check_tolerations(spec: Object, held: Object) -> Iterator[Cause]:
    wanted = {identity_of(each) for each in structs_in(spec, "tolerations")}
    if any(identity_of(each) not in wanted for each in structs_in(held, "tolerations")):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield causes.forbidden("spec.tolerations", why)


def _check_gates(spec: Object, held: Object) -> Iterator[Cause]:
    before = {identity_of(each) for each in structs_in(held, "schedulingGates")}
    if any(identity_of(each) not in before for each in structs_in(spec, "schedulingGates")):
        why = "only deletion is allowed, but found new scheduling gate"
        yield causes.forbidden("spec.schedulingGates", why)


_LOOSE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})


def _frozen_part(spec: Object, held: Object) -> dict[str, Any]:
    """Return a spec without the parts that may change."""
    loose = {*_LOOSE, *(("nodeSelector", "affinity") if held.get("schedulingGates") else ())}
    frozen = {key: value for key, value in spec.items() if key not in loose}
    for field in ("containers", "initContainers"):
        frozen[field] = [{**each, "image": ""} for each in structs_in(spec, field)]
    was_negative = (held.get("terminationGracePeriodSeconds") or 0) < 0
    if was_negative and spec.get("terminationGracePeriodSeconds") in (
        1,
        held["terminationGracePeriodSeconds"],
    ):
        frozen.pop("terminationGracePeriodSeconds", None)
    return frozen
