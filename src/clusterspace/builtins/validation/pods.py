"""The rules of pods and pod templates: where they may run, their spec, what may change."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.containers import (
    POD_SECURITY,
    PodContext,
    check_containers,
    check_image_spelling,
    check_init_containers,
)
from clusterspace.builtins.validation.formats import address_problems
from clusterspace.builtins.validation.metadata import (
    NODE_SELECTOR,
    NODE_TERM,
    check_annotations,
    check_labels,
    labels,
    selector,
)
from clusterspace.builtins.validation.resources import check_requirements
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    chosen,
    each,
    if_set,
    inside,
    of_form,
    positive,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.builtins.validation.volumes import find_volumes
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    label_key_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, identity_of, metadata_of

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _namespaces(term: Object, path: str) -> Iterator[Cause]:
    for name in texts_in(term, "namespaces"):
        yield from problems_at(at(path, "namespace"), name, dns1123_label_problems(name))


def _field_terms(term: Object, path: str) -> Iterator[Cause]:
    """Check terms on the fields of a node, of which there is one: its name."""
    for index, requirement in enumerate(structs_in(term, "matchFields")):
        place = f"{path}.matchFields[{index}]"
        operator, values = requirement.get("operator", ""), texts_in(requirement, "values")
        if operator not in ("In", "NotIn"):
            yield causes.invalid(at(place, "operator"), operator, "not a valid selector operator")
        elif len(values) != 1:
            why = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield causes.required(at(place, "values"), why)
        if requirement.get("key") != "metadata.name":
            key = requirement.get("key", "")
            yield causes.invalid(at(place, "key"), key, "not a valid field selector key")


_WEIGHT: Final = between("weight", 1, 100, "must be in the range 1-100")


def _label_keys(*fields: str) -> Check:
    """Check lists of label keys whose values a pod takes from itself."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        for field in fields:
            for index, key in enumerate(texts_in(struct, field)):
                yield from problems_at(f"{path}.{field}[{index}]", key, label_key_problems(key))

    return check


_POD_TERM: Final = (
    selector("labelSelector"),
    selector("namespaceSelector"),
    _namespaces,
    _label_keys("matchLabelKeys", "mismatchLabelKeys"),
    required("topologyKey", "can not be empty"),
    of_form("topologyKey", label_key_problems),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_TERMS: Final = (
    each(_REQUIRED, *_POD_TERM),
    each(_PREFERRED, _WEIGHT, inside("podAffinityTerm", *_POD_TERM)),
)

AFFINITY: Final = inside(
    "affinity",
    inside(
        "nodeAffinity",
        inside(_REQUIRED, *NODE_SELECTOR, each("nodeSelectorTerms", _field_terms)),
        each(_PREFERRED, _WEIGHT, inside("preference", *NODE_TERM, _field_terms)),
    ),
    inside("podAffinity", *_POD_TERMS),
    inside("podAntiAffinity", *_POD_TERMS),
)
"""The check of a pod's affinity."""


def _toleration(toleration: Object, path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from problems_at(at(path, "key"), key, label_key_problems(key))
    elif operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, "
            'which means "match all values and all keys"'
        )
        yield causes.invalid(at(path, "operator"), operator, why)
    effect = toleration.get("effect", "")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield causes.invalid(at(path, "effect"), effect, why)
    value = toleration.get("value", "")
    place = at(path, "operator")
    if operator in ("", "Equal"):
        if problems := label_value_problems(value):
            yield causes.invalid(place, value, ";".join(problems))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            yield causes.invalid(place, value, why)
    else:
        yield causes.not_supported(place, operator, ("Equal", "Exists"))
    if effect and effect not in TAINT_EFFECTS:
        yield causes.not_supported(at(path, "effect"), effect, TAINT_EFFECTS)


TOLERATIONS: Final = each("tolerations", _toleration)
"""The check of a pod's tolerations."""


def _spread_and_host(spec: Object, path: str) -> Iterator[Cause]:
    """Check that no spread is there twice, and what a pod may share with its node."""
    constraints = structs_in(spec, "topologySpreadConstraints")
    pairs = [(each.get("topologyKey"), each.get("whenUnsatisfiable")) for each in constraints]
    for index, pair in enumerate(pairs):
        if pair in pairs[index + 1 :]:
            place = f"{path}.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
            yield causes.duplicate(place, f"{{{pair[0]}, {pair[1]}}}")
    if spec.get("hostUsers") is False:
        for field, shown in _NEEDS_HOST_USERS:
            if spec.get(field):
                yield causes.forbidden(at(path, shown), "when `hostUsers` is false")
    name, place = spec.get("hostnameOverride"), at(path, "hostnameOverride")
    if name is not None:
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                yield causes.forbidden(place, f"may not be specified when {field} is true")
        yield from problems_at(place, name, dns1123_subdomain_problems(name))


_NEEDS_HOST_USERS: Final = (
    ("hostNetwork", "hostNetwork"),
    ("hostPID", "HostPID"),
    ("hostIPC", "HostIPC"),
)


def _domains(constraint: Object, path: str) -> Iterator[Cause]:
    wanted = constraint.get("whenUnsatisfiable", "")
    if constraint.get("minDomains") is not None and wanted != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {wanted}"
        yield causes.invalid(at(path, "minDomains"), constraint["minDomains"], why)


_ABOVE_ZERO: Final = "must be greater than zero"
SPREAD: Final = (
    each(
        "topologySpreadConstraints",
        positive("maxSkew", _ABOVE_ZERO),
        required("topologyKey", "can not be empty"),
        supported("whenUnsatisfiable", "DoNotSchedule", "ScheduleAnyway"),
        positive("minDomains", _ABOVE_ZERO),
        _domains,
        supported("nodeAffinityPolicy", "Honor", "Ignore"),
        supported("nodeTaintsPolicy", "Honor", "Ignore"),
        _label_keys("matchLabelKeys"),
        selector("labelSelector"),
    ),
    _spread_and_host,
)
"""The checks of how a pod's replicas are spread, and of what it shares with its node."""


_LARGEST_INT32: Final = (1 << 31) - 1
_MOST_NAME_SERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_DEFAULT_GRACE: Final = 30


def check_pod_spec(spec: Object, path: str, *, is_template: bool) -> Iterator[Cause]:
    """Check a pod's spec, in the order the server does."""
    found = find_volumes(spec, path, is_template=is_template)
    yield from found.causes
    grace: Any = spec.get("terminationGracePeriodSeconds")
    context = PodContext(found.volumes, _DEFAULT_GRACE if grace is None else grace, is_template)
    yield from check_containers(spec, path, context)
    yield from check_init_containers(spec, path, context)
    if spec.get("hostNetwork"):
        for index, container in enumerate(structs_in(spec, "containers")):
            for number, port in enumerate(structs_in(container, "ports")):
                on_host = port.get("hostPort", 0)
                if (on_host or not is_template) and on_host != port.get("containerPort", 0):
                    place = f"{path}.containers[{index}].ports[{number}].hostPort"
                    why = "must match `containerPort` when `hostNetwork` is true"
                    yield causes.invalid(place, on_host, why)
    yield from check_all(spec, path, _SPEC)


def check_pod_template(template: Object, path: str) -> Iterator[Cause]:
    """Check a template of pods."""
    metadata = metadata_of(template)
    yield from check_labels(struct_in(metadata, "labels"), at(path, "labels"))
    yield from check_annotations(struct_in(metadata, "annotations"), at(path, "annotations"))
    spec = struct_in(template, "spec")
    yield from check_pod_spec(spec, at(path, "spec"), is_template=True)
    if spec.get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        yield causes.forbidden(f"{path}.spec.ephemeralContainers", why)


def check_pod(pod: Object) -> Iterator[Cause]:
    """Check a pod beyond its metadata, new or changed."""
    spec = struct_in(pod, "spec")
    yield from check_pod_spec(spec, "spec", is_template=False)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(structs_in(spec, "volumes")):
            sources = structs_in(struct_in(volume, "projected"), "sources")
            for number, source in enumerate(sources):
                if source.get("serviceAccountToken") is not None:
                    place = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                    why = "must not be specified when serviceAccountName is not set"
                    yield causes.forbidden(place, why)
    yield from check_image_spelling(spec, "spec")


def check_new_pod(pod: Object) -> Iterator[Cause]:
    """Check what a pod may not have at first."""
    spec = struct_in(pod, "spec")
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        yield causes.forbidden("spec.nodeName", why)


def _dns(spec: Object, path: str) -> Iterator[Cause]:
    config, place = spec.get("dnsConfig"), at(path, "dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield causes.required(place, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield causes.required(at(place, "nameservers"), why)
            return
    if config is not None:
        servers, searches = texts_in(config, "nameservers"), texts_in(config, "searches")
        if len(servers) > _MOST_NAME_SERVERS:
            why = f"must not have more than {_MOST_NAME_SERVERS} nameservers"
            yield causes.invalid(at(place, "nameservers"), servers, why)
        for index, address in enumerate(servers):
            yield from problems_at(
                f"{place}.nameservers[{index}]", address, address_problems(address)
            )
        if len(searches) > _MOST_SEARCHES:
            why = f"must not have more than {_MOST_SEARCHES} search paths"
            yield causes.invalid(at(place, "searches"), searches, why)
        for index, option in enumerate(structs_in(config, "options")):
            if not option.get("name"):
                yield causes.required(f"{place}.options[{index}]", "must not be empty")


def _gates(spec: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(structs_in(spec, "schedulingGates")):
        place, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        yield from problems_at(place, name, qualified_name_problems(name))
        if name in seen:
            yield causes.duplicate(place, name)
        seen.add(name)


def _host_aliases(spec: Object, path: str) -> Iterator[Cause]:
    for index, alias in enumerate(structs_in(spec, "hostAliases")):
        place, address = f"{path}.hostAliases[{index}]", alias.get("ip", "")
        yield from problems_at(at(place, "ip"), address, address_problems(address))
        for number, name in enumerate(texts_in(alias, "hostnames")):
            problems = dns1123_subdomain_problems(name)
            yield from problems_at(f"{place}.hostnames[{number}]", name, problems)


def _overhead_and_system(spec: Object, path: str) -> Iterator[Cause]:
    # What running the pod itself costs is checked as if it were limits, and called so.
    yield from check_requirements({"limits": struct_in(spec, "overhead")}, at(path, "overhead"))
    system = spec.get("os")
    if system is not None and not system.get("name"):
        yield causes.required(f"{path}.os.name")
    elif system is not None and system["name"] not in ("linux", "windows"):
        yield causes.not_supported(at(path, "os"), system["name"], ("linux", "windows"))


_SPEC: Final = (
    chosen("restartPolicy", "Always", "OnFailure", "Never"),
    chosen("dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    labels("nodeSelector"),
    POD_SECURITY,
    AFFINITY,
    _dns,
    each("readinessGates", of_form("conditionType", qualified_name_problems)),
    _gates,
    *SPREAD,
    well_formed("serviceAccountName", dns1123_subdomain_problems),
    well_formed("nodeName", dns1123_subdomain_problems),
    between("activeDeadlineSeconds", 1, _LARGEST_INT32),
    well_formed("hostname", dns1123_label_problems),
    well_formed("subdomain", dns1123_label_problems),
    TOLERATIONS,
    _host_aliases,
    well_formed("priorityClassName", dns1123_subdomain_problems),
    if_set("runtimeClassName", of_form("runtimeClassName", dns1123_subdomain_problems)),
    if_set("preemptionPolicy", chosen("preemptionPolicy", "PreemptLowerPriority", "Never")),
    _overhead_and_system,
)


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
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    for field in ("containers", "initContainers"):
        if len(structs_in(spec, field)) != len(structs_in(existing, field)):
            yield causes.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    deadline, latest = spec.get("activeDeadlineSeconds"), existing.get("activeDeadlineSeconds")
    if latest is not None and deadline is None:
        why = "must not update from a positive integer to nil value"
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, why)
    elif latest is not None and deadline > latest:
        why = "must be less than or equal to previous value"
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, why)
    wanted = {identity_of(each) for each in structs_in(spec, "tolerations")}
    if any(identity_of(each) not in wanted for each in structs_in(existing, "tolerations")):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield causes.forbidden("spec.tolerations", why)
    before = {identity_of(each) for each in structs_in(existing, "schedulingGates")}
    if any(identity_of(each) not in before for each in structs_in(spec, "schedulingGates")):
        why = "only deletion is allowed, but found new scheduling gate"
        yield causes.forbidden("spec.schedulingGates", why)
    if _frozen_part(spec, existing) != _frozen_part(existing, existing):
        yield causes.forbidden("spec", _FROZEN)


_LOOSE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})


def _frozen_part(spec: Object, existing: Object) -> dict[str, Any]:
    """Return a spec without the parts that may change."""
    loose = {*_LOOSE, *(("nodeSelector", "affinity") if existing.get("schedulingGates") else ())}
    frozen = {key: value for key, value in spec.items() if key not in loose}
    for field in ("containers", "initContainers"):
        frozen[field] = [{**each, "image": ""} for each in structs_in(spec, field)]
    was_negative = (existing.get("terminationGracePeriodSeconds") or 0) < 0
    if was_negative and spec.get("terminationGracePeriodSeconds") in (
        1,
        existing["terminationGracePeriodSeconds"],
    ):
        frozen.pop("terminationGracePeriodSeconds", None)
    return frozen
