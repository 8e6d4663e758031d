"""The rules of security contexts, of a pod and of a container."""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.builtins.validation.formats import user_id_problems
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    inside,
    invalid_struct,
    problems_at,
    struct_in,
    structs_in,
    supported,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object

_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_LENGTH: Final = 253


def identity(field: str) -> Check:
    """Check a numeric user or group."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        number = struct.get(field)
        if number is not None:
            yield from problems_at(at(path, field), number, user_id_problems(number))

    return check


def _profile(field: str, noun: str) -> Check:
    """Check a seccomp or AppArmor profile: a known type, and a file only when it is local."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        profile, place = struct.get(field), at(path, field)
        if profile is None:
            return
        kind, local = profile.get("type"), profile.get("localhostProfile")
        if kind == "Localhost" and not local:
            why = f"must be set when {noun} type is Localhost"
            yield causes.required(at(place, "localhostProfile"), why)
        elif kind not in ("Localhost", None, "") and local is not None:
            why = f"can only be set when {noun} type is Localhost"
            yield causes.invalid(at(place, "localhostProfile"), local, why)
        if not kind:
            yield causes.required(at(place, "type"), f"type is required when {field} is set")
        elif kind not in _PROFILE_TYPES:
            yield causes.not_supported(at(place, "type"), kind, _PROFILE_TYPES)

    return check


_PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def _no_escalation(context: Object, path: str) -> Iterator[Cause]:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    shown = internal_form(context)
    if context.get("privileged"):
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid_struct(path, shown, why)
    if "CAP_SYS_ADMIN" in ((struct_in(context, "capabilities")).get("add") or []):
        why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        yield invalid_struct(path, shown, why)


def internal_form(context: Object) -> dict[str, Any]:
    """Return a container's context as the server's messages show it: every field, by its name."""
    capabilities = context.get("capabilities")
    seccomp, apparmor = context.get("seccompProfile"), context.get("appArmorProfile")
    return {
        "Capabilities": capabilities
        and {"Add": capabilities.get("add"), "Drop": capabilities.get("drop")},
        "Privileged": context.get("privileged"),
        "SELinuxOptions": context.get("seLinuxOptions"),
        "WindowsOptions": context.get("windowsOptions"),
        "RunAsUser": context.get("runAsUser"),
        "RunAsGroup": context.get("runAsGroup"),
        "RunAsNonRoot": context.get("runAsNonRoot"),
        "ReadOnlyRootFilesystem": context.get("readOnlyRootFilesystem"),
        "AllowPrivilegeEscalation": context.get("allowPrivilegeEscalation"),
        "ProcMount": context.get("procMount"),
        "SeccompProfile": seccomp and _profile_form(seccomp),
        "AppArmorProfile": apparmor and _profile_form(apparmor),
    }


def _profile_form(profile: Object) -> Object:
    return {"Type": profile.get("type"), "LocalhostProfile": profile.get("localhostProfile")}


CONTAINER_SECURITY: Final = inside(
    "securityContext",
    identity("runAsUser"),
    identity("runAsGroup"),
    supported("procMount", "Default", "Unmasked"),
    _profile("seccompProfile", "seccomp"),
    _no_escalation,
    _profile("appArmorProfile", "AppArmor"),
)
"""The check of a container's security context."""


def _supplemental_groups(context: Object, path: str) -> Iterator[Cause]:
    groups = cast("list[int]", context.get("supplementalGroups") or [])
    for index, number in enumerate(groups):
        place = f"{path}.supplementalGroups[{index}]"
        yield from problems_at(place, number, user_id_problems(number))


def _sysctls(context: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, sysctl in enumerate(structs_in(context, "sysctls")):
        place, name = f"{path}.sysctls[{index}].name", sysctl.get("name", "")
        if not name:
            yield causes.required(place)
        elif len(name) > _SYSCTL_LENGTH or not re.fullmatch(_SYSCTL, name):
            why = f"must have at most {_SYSCTL_LENGTH} characters and match regex ^{_SYSCTL}$"
            yield causes.invalid(place, name, why)
        elif name in seen:
            yield causes.duplicate(place, name)
        seen.add(name)


POD_SECURITY: Final = inside(
    "securityContext",
    identity("fsGroup"),
    identity("runAsUser"),
    identity("runAsGroup"),
    _supplemental_groups,
    _sysctls,
    supported("fsGroupChangePolicy", "Always", "OnRootMismatch"),
    _profile("seccompProfile", "seccomp"),
    _profile("appArmorProfile", "AppArmor"),
    supported("supplementalGroupsPolicy", "Merge", "Strict"),
    supported("seLinuxChangePolicy", "Recursive"),
)
"""The check of a pod's security context."""
