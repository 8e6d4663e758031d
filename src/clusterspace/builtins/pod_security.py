"""The Pod Security Standards: what a pod of each level must not ask of its node.

A level is `privileged` (anything goes), `baseline` (nothing that is known to lead out of a
container) or `restricted` (best practice). What a level asks for has changed with Kubernetes'
versions, so a policy names both: `restricted:v1.24`, `baseline:latest`.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, annotations_of, find_at

LABELS: Final = "pod-security.kubernetes.io/"
"""What the labels of a Namespace begin with that say its policy."""

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
_LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
"""From the loosest to the strictest."""

LATEST: Final = 1_000
"""The minor version that is newer than all: of what is asked for today."""


class LevelVersion(NamedTuple):
    """A level as a version of Kubernetes has it."""

    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        """Return it as warnings and annotations have it."""
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        """The place of its level among all."""
        return _LEVELS.index(self.level)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a namespace asks of pods: what is refused, what is noted, what is warned of."""

    enforce: LevelVersion
    audit: LevelVersion
    warn: LevelVersion

    @property
    def is_privileged(self) -> bool:
        """Whether no pod can do anything wrong."""
        return all(each.level == PRIVILEGED for each in (self.enforce, self.audit, self.warn))


def read_policy(labels: Mapping[str, str]) -> tuple[Policy, tuple[Cause, ...]]:
    """Return the policy of a namespace with these labels, and what cannot be read of it.

    What cannot be read is taken for the strictest where it enforces, and for nothing elsewhere.
    Who is told nothing else is warned of what is refused.
    """
    found: list[Cause] = []
    read: dict[str, LevelVersion] = {}
    for mode in ("enforce", "audit", "warn"):
        level, minor = PRIVILEGED, LATEST
        given = labels.get(f"{LABELS}{mode}")
        if given is not None and given in _LEVELS:
            level = given
        elif given is not None:
            place = f"metadata.labels[{LABELS}{mode}]"
            found.append(causes.invalid(place, given, f"must be one of {', '.join(_LEVELS)}"))
            level = RESTRICTED if mode == "enforce" else PRIVILEGED
        version = labels.get(f"{LABELS}{mode}-version")
        if version is not None and version != "latest":
            number = re.fullmatch(r"v1\.([0-9]|[1-9][0-9]*)", version)
            if number is None:
                place = f"metadata.labels[{LABELS}{mode}-version]"
                found.append(causes.invalid(place, version, 'must be "latest" or "v1.x"'))
            else:
                minor = min(int(number[1]), LATEST - 1)
        read[mode] = LevelVersion(level, minor)
    enforce, warn = read["enforce"], read["warn"]
    is_chosen = f"{LABELS}warn" in labels
    if not is_chosen and labels.get(f"{LABELS}enforce") in _LEVELS[1:]:
        has_version = f"{LABELS}warn-version" in labels
        warn = LevelVersion(enforce.level, warn.minor if has_version else enforce.minor)
    return Policy(enforce, read["audit"], warn), tuple(found)


class Violation(NamedTuple):
    """What a pod does that its level does not allow."""

    reason: str
    detail: str

    def __str__(self) -> str:
        """Return the reason with its details."""
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def violations(asked: LevelVersion, template: Object) -> list[Violation]:
    """Return everything in a pod, or in a template of pods, that a level does not allow."""
    if asked.level == PRIVILEGED:
        return []
    pod = _Pod.of(template)
    checks: list[_Check] = list(_applied(_BASELINE, asked.minor))
    if asked.level == RESTRICTED:
        stricter = list(_applied(_RESTRICTED, asked.minor))
        replaced = {name for each in stricter for name in each.replaces}
        checks = [*(each for each in checks if each.name not in replaced), *stricter]
    return [found for each in checks if (found := each.check(pod)) is not None]


def _applied(checks: "Iterable[_Check]", minor: int) -> "Iterator[_Check]":
    """Return the newest form of each check that a version has."""
    newest: dict[str, _Check] = {}
    for each in checks:
        if each.since <= minor:
            newest[each.name] = each
    yield from newest.values()


# -- a pod as the checks look at it ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pod:
    spec: Object
    annotations: Mapping[str, str]
    containers: list[Object]

    @classmethod
    def of(cls, template: Object) -> "_Pod":
        spec = cast("Object", template.get("spec") or {})
        fields = ("initContainers", "containers", "ephemeralContainers")
        containers = [
            each for field in fields for each in cast("list[Object]", spec.get(field) or [])
        ]
        return cls(spec, annotations_of(template), containers)

    @property
    def is_for_windows(self) -> bool:
        return find_at(self.spec, "os", "name") == "windows"

    @property
    def has_own_users(self) -> bool:
        """Whether root in the pod is nobody on its node."""
        return self.spec.get("hostUsers") is False

    def own(self, *path: str) -> Any:
        """Return a field of the pod's own security context."""
        return find_at(self.spec, "securityContext", *path)

    def names_where(self, is_bad: Callable[[Object], bool]) -> list[str]:
        """Return the names of containers by their security context."""
        return [
            str(each.get("name") or "")
            for each in self.containers
            if is_bad(cast("Object", each.get("securityContext") or {}))
        ]


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in texts)


def _noun(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _containers(names: list[str]) -> str:
    return f"{_noun('container', len(names))} {_quoted(names)}"


def _setters(pod_is_bad: bool, names: list[str]) -> str:
    return " and ".join(
        [*(["pod"] if pod_is_bad else []), *([_containers(names)] if names else [])]
    )


# -- baseline --------------------------------------------------------------------------------------

_APP_ARMOR: Final = ("RuntimeDefault", "Localhost")
_APP_ARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"


def _app_armor(pod: _Pod) -> Violation | None:
    def bad_type(profile: Any) -> str | None:
        found = None if profile is None else str(profile.get("type") or "")
        return None if found in (None, *_APP_ARMOR) else found

    own = bad_type(pod.own("appArmorProfile"))
    names = pod.names_where(lambda context: bad_type(context.get("appArmorProfile")) is not None)
    values = {
        found
        for each in pod.containers
        if (found := bad_type(find_at(each, "securityContext", "appArmorProfile"))) is not None
    } | ({own} if own is not None else set[str]())
    notes = sorted(
        f'{key}="{value}"'
        for key, value in pod.annotations.items()
        if key.startswith(_APP_ARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    setters = [each for each in (_setters(own is not None, names),) if each]
    if notes:
        setters.append(_noun("annotation", len(notes)))
    if not setters:
        return None
    listed = [*sorted(values), *notes]
    return Violation(
        _noun("forbidden AppArmor profile", len(listed)),
        f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(listed)}",
    )


_DEFAULT_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)


def _added_beyond(pod: _Pod, allowed: frozenset[str]) -> str:
    """Return which containers add capabilities that are not allowed; empty when none does."""

    def beyond(context: Object) -> set[str]:
        return {str(each) for each in find_at(context, "capabilities", "add") or ()} - allowed

    names = pod.names_where(lambda context: bool(beyond(context)))
    added = set[str]().union(
        *(beyond(each.get("securityContext") or {}) for each in pod.containers)
    )
    if not names:
        return ""
    where = "securityContext.capabilities.add"
    return f"{_containers(names)} must not include {_quoted(sorted(added))} in {where}"


def _capabilities(pod: _Pod) -> Violation | None:
    detail = _added_beyond(pod, _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", detail) if detail else None


def _host_namespaces(pod: _Pod) -> Violation | None:
    used = [
        f"{each}=true"
        for each in ("hostNetwork", "hostPID", "hostIPC")
        if pod.spec.get(each) is True
    ]
    return Violation("host namespaces", ", ".join(used)) if used else None


def _volumes(pod: _Pod) -> list[Object]:
    return cast("list[Object]", pod.spec.get("volumes") or [])


def _host_paths(pod: _Pod) -> Violation | None:
    names = [str(each["name"]) for each in _volumes(pod) if each.get("hostPath") is not None]
    if not names:
        return None
    return Violation("hostPath volumes", f"{_noun('volume', len(names))} {_quoted(names)}")


def _host_ports(pod: _Pod) -> Violation | None:
    names: list[str] = []
    ports: set[str] = set()
    for container in pod.containers:
        listed = cast("list[Object]", container.get("ports") or [])
        used = {str(each["hostPort"]) for each in listed if each.get("hostPort")}
        if used:
            names.append(str(container.get("name") or ""))
            ports |= used
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    noun = _noun("hostPort", len(ports))
    return Violation("hostPort", f"{_containers(names)} {verb} {noun} {', '.join(sorted(ports))}")


_HANDLERS: Final = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)


def _probe_hosts(pod: _Pod) -> Violation | None:
    names: set[str] = set()
    hosts: set[str] = set()
    for container in pod.containers:
        for handler in _HANDLERS:
            for action in ("httpGet", "tcpSocket"):
                if host := find_at(container, *handler, action, "host"):
                    names.add(str(container.get("name") or ""))
                    hosts.add(str(host))
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    noun = _noun("probe or lifecycle host", len(hosts))
    detail = f"{_containers(sorted(names))} {verb} {noun} {_quoted(sorted(hosts))}"
    return Violation("probe or lifecycle host", detail)


def _privileged(pod: _Pod) -> Violation | None:
    names = pod.names_where(lambda context: context.get("privileged") is True)
    if not names:
        return None
    return Violation(
        "privileged", f"{_containers(names)} must not set securityContext.privileged=true"
    )


def _proc_mount(pod: _Pod) -> Violation | None:
    names = pod.names_where(lambda context: context.get("procMount") not in (None, "Default"))
    if not names:
        return None
    mounts = {str(find_at(each, "securityContext", "procMount") or "") for each in pod.containers}
    kinds = _quoted(sorted(mounts - {"", "Default"}))
    return Violation(
        "procMount", f"{_containers(names)} must not set securityContext.procMount to {kinds}"
    )


_SE_LINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t")


def _se_linux(pod: _Pod, allowed: tuple[str, ...] = _SE_LINUX_TYPES) -> Violation | None:
    def is_bad(options: Any) -> bool:
        if options is None:
            return False
        is_typed = str(options.get("type") or "") not in allowed
        return is_typed or bool(options.get("user")) or bool(options.get("role"))

    own = pod.own("seLinuxOptions")
    names = pod.names_where(lambda context: is_bad(context.get("seLinuxOptions")))
    if not is_bad(own) and not names:
        return None
    contexts = (find_at(each, "securityContext", "seLinuxOptions") for each in pod.containers)
    given = [cast("Object", each) for each in (own, *contexts) if each is not None]
    types = sorted({str(each.get("type") or "") for each in given} - set(allowed))
    wrong = [f"{_noun('type', len(types))} {_quoted(types)}"] if types else []
    wrong += [
        f"{each} may not be set" for each in ("user", "role") if any(o.get(each) for o in given)
    ]
    setters = _setters(is_bad(own), names)
    detail = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(wrong)}"
    return Violation("seLinuxOptions", detail)


def _se_linux_with_engines(pod: _Pod) -> Violation | None:
    return _se_linux(pod, (*_SE_LINUX_TYPES, "container_engine_t"))


_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(pod: _Pod) -> Violation | None:
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{each.get('name')}" for each in pod.containers)]
    given = {key: pod.annotations[key] for key in keys if key in pod.annotations}
    forbidden = sorted(
        f'{key}="{value}"'
        for key, value in given.items()
        if value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    if not forbidden:
        return None
    noun = _noun("annotation", len(forbidden))
    return Violation("seccompProfile", f"forbidden {noun} {', '.join(forbidden)}")


def _is_bad_seccomp(profile: Any) -> bool:
    return profile is not None and profile.get("type") not in ("RuntimeDefault", "Localhost")


def _seccomp(pod: _Pod) -> Violation | None:
    own = pod.own("seccompProfile")
    names = pod.names_where(lambda context: _is_bad_seccomp(context.get("seccompProfile")))
    if not _is_bad_seccomp(own) and not names:
        return None
    contexts = (find_at(each, "securityContext", "seccompProfile") for each in pod.containers)
    bad = [cast("Object", each) for each in (own, *contexts) if _is_bad_seccomp(each)]
    kinds = _quoted(sorted({str(each.get("type") or "") for each in bad}))
    setters = _setters(_is_bad_seccomp(own), names)
    where = "securityContext.seccompProfile.type"
    return Violation("seccompProfile", f"{setters} must not set {where} to {kinds}")


_SYSCTLS: Final = (
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
)
"""Since which version a sysctl is taken for safe."""


def _sysctls_since(minor: int) -> "Callable[[_Pod], Violation | None]":
    safe = frozenset(name for since, name in _SYSCTLS if since <= minor)

    def check(pod: _Pod) -> Violation | None:
        given = [str(each.get("name") or "") for each in pod.own("sysctls") or ()]
        forbidden = [each for each in given if each not in safe]
        return Violation("forbidden sysctls", ", ".join(forbidden)) if forbidden else None

    return check


def _host_process(pod: _Pod) -> Violation | None:
    path = ("windowsOptions", "hostProcess")
    names = pod.names_where(lambda context: find_at(context, *path) is True)
    setters = _setters(pod.own(*path) is True, names)
    if not setters:
        return None
    return Violation(
        "hostProcess", f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    )


# -- restricted ------------------------------------------------------------------------------------


def _escalation(pod: _Pod) -> Violation | None:
    names = pod.names_where(lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def _no_capabilities(pod: _Pod) -> Violation | None:
    keeping = pod.names_where(
        lambda context: "ALL" not in (find_at(context, "capabilities", "drop") or ())
    )
    found: list[str] = []
    if keeping:
        found.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding := _added_beyond(pod, frozenset({"NET_BIND_SERVICE"})):
        found.append(adding)
    return Violation("unrestricted capabilities", "; ".join(found)) if found else None


_PLAIN_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
)  # fmt: skip
_OTHER_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi",
    "glusterfs", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile",
    "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO",
    "storageos",
)  # fmt: skip


def _plain_volumes(pod: _Pod) -> Violation | None:
    names: list[str] = []
    kinds: set[str] = set()
    for volume in _volumes(pod):
        if any(volume.get(each) is not None for each in _PLAIN_VOLUMES):
            continue
        names.append(str(volume.get("name") or ""))
        found = (each for each in _OTHER_VOLUMES if volume.get(each) is not None)
        kinds.add(next(found, "unknown"))
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    volumes = f"{_noun('volume', len(names))} {_quoted(names)}"
    noun = _noun("restricted volume type", len(kinds))
    return Violation("restricted volume types", f"{volumes} {verb} {noun} {_quoted(sorted(kinds))}")


def _not_root(pod: _Pod) -> Violation | None:
    own = pod.own("runAsNonRoot")
    saying_no = pod.names_where(lambda context: context.get("runAsNonRoot") is False)
    silent = pod.names_where(lambda context: context.get("runAsNonRoot") is None)
    reason = "runAsNonRoot != true"
    if setters := _setters(own is False, saying_no):
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    if own is True or not silent:
        return None
    detail = f"pod or {_containers(silent)} must set securityContext.runAsNonRoot=true"
    return Violation(reason, detail)


def _user_not_root(pod: _Pod) -> Violation | None:
    names = pod.names_where(lambda context: context.get("runAsUser") == 0)
    setters = _setters(pod.own("runAsUser") == 0, names)
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_stated(pod: _Pod) -> Violation | None:
    if (found := _seccomp(pod)) is not None:
        return found
    silent = pod.names_where(lambda context: context.get("seccompProfile") is None)
    if pod.own("seccompProfile") is not None or not silent:
        return None
    where = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_containers(silent)} must set {where}")


# -- which check is of which level, since when ----------------------------------------------------

_Look: TypeAlias = Callable[[_Pod], Violation | None]


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    since: int
    check: _Look
    replaces: tuple[str, ...] = ()
    """Checks of the baseline that it makes needless."""


def _unless(is_exempt: Callable[[_Pod], bool], check: _Look) -> _Look:
    return lambda pod: None if is_exempt(pod) else check(pod)


def _unless_windows(check: _Look) -> _Look:
    return _unless(lambda pod: pod.is_for_windows, check)


def _unless_own_users(check: _Look) -> _Look:
    return _unless(lambda pod: pod.has_own_users, check)


# In the order of their names, in which they are reported; the forms of one, from old to new.
_BASELINE: Final = (
    _Check("appArmorProfile", 0, _app_armor),
    _Check("capabilities", 0, _capabilities),
    _Check("hostNamespaces", 0, _host_namespaces),
    _Check("hostPathVolumes", 0, _host_paths),
    _Check("hostPorts", 0, _host_ports),
    _Check("hostProbes", 34, _probe_hosts),
    _Check("privileged", 0, _privileged),
    _Check("procMount", 0, _proc_mount),
    _Check("procMount", 35, _unless_own_users(_proc_mount)),
    _Check("seLinuxOptions", 0, _se_linux),
    _Check("seLinuxOptions", 31, _se_linux_with_engines),
    _Check("seccompProfile", 0, _seccomp_annotations),
    _Check("seccompProfile", 19, _seccomp),
    *(_Check("sysctls", since, _sysctls_since(since)) for since in (0, 27, 29, 32)),
    _Check("windowsHostProcess", 0, _host_process),
)
_RESTRICTED: Final = (
    _Check("allowPrivilegeEscalation", 8, _escalation),
    _Check("allowPrivilegeEscalation", 25, _unless_windows(_escalation)),
    _Check("capabilities", 22, _no_capabilities, ("capabilities",)),
    _Check("capabilities", 25, _unless_windows(_no_capabilities), ("capabilities",)),
    _Check("procMount", 35, _proc_mount, ("procMount",)),
    _Check("restrictedVolumes", 0, _plain_volumes, ("hostPathVolumes",)),
    _Check("runAsNonRoot", 0, _not_root),
    _Check("runAsNonRoot", 35, _unless_own_users(_not_root)),
    _Check("runAsUser", 23, _user_not_root),
    _Check("runAsUser", 35, _unless_own_users(_user_not_root)),
    _Check("seccompProfile", 19, _seccomp_stated, ("seccompProfile",)),
    _Check("seccompProfile", 25, _unless_windows(_seccomp_stated), ("seccompProfile",)),
)
