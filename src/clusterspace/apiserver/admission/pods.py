"""What a new pod gets by the classes it names: its priority, its runtime; and how long it stays.

Of the plug-ins here and in `service_accounts`, `limit_ranges`, `storage` and `pod_security`, a
cluster that runs pods refuses what it could not run, and fills in what is its own default. A hub
runs none: its pods are templates for members, which have classes, accounts and defaults of their
own. There a class or an account that is missing is a warning, and no default class is filled in.
"""

from typing import Final, cast

from clusterspace.apis.stamps import CONFLICT_RESOLUTION, OVERWRITE
from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.pods import are_equal_amounts
from clusterspace.builtins.strategies import (
    SYSTEM_PRIORITIES,
    with_default_tolerations,
)
from clusterspace.errors import Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, with_value

PREEMPTS: Final = "PreemptLowerPriority"


def refused(admission: Admission, why: str) -> Forbidden:
    """Return the refusal of a write, in the words every plug-in of Kubernetes uses."""
    return statuses.forbidden(admission.served.info.group_resource, name_of(admission.new), why)


def is_taken_over(admission: Admission) -> bool:
    """Whether an object was copied from a member where it runs, to be taken over as it is."""
    return annotations_of(admission.new).get(CONFLICT_RESOLUTION) == OVERWRITE


def is_pod(admission: Admission) -> bool:
    """Whether a pod itself is written, and no subresource of one."""
    return admission.is_of("", "Pod") and not admission.subresource


class Priority(Plugin):
    """Gives pods the number behind their PriorityClass, and keeps one class the default."""

    name = "Priority"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Fill in a new pod's priority; keep that of one that is there."""
        if not is_pod(admission):
            return admission.new
        pod = admission.new
        spec = cast("Object", pod["spec"])
        if admission.old is not None:
            kept = {
                field: find_at(admission.old, "spec", field)
                for field in ("priority", "preemptionPolicy")
                if spec.get(field) is None
            }
            kept = {field: value for field, value in kept.items() if value is not None}
            return {**pod, "spec": {**spec, **kept}} if kept else pod

        name = str(spec.get("priorityClassName") or "")
        value, policy = SYSTEM_PRIORITIES.get(name, 0), PREEMPTS
        if not name:
            default = None if self._is_hub else await self._default(hub)
            if default is not None:
                name, value = name_of(default), int(default.get("value") or 0)
                policy = default.get("preemptionPolicy") or PREEMPTS
        elif name not in SYSTEM_PRIORITIES:
            found = await find_object(hub, "scheduling.k8s.io", "priorityclasses", "", name)
            if found is None:
                why = f"no PriorityClass with name {name} was found"
                if not self._is_hub:
                    raise refused(admission, why)
                admission.warn(f"{why} here: a cluster that runs the pod must have it")
                assumed: Object = {"priority": 0, "preemptionPolicy": PREEMPTS, **spec}
                return {**pod, "spec": assumed}
            value = int(found.get("value") or 0)
            policy = found.get("preemptionPolicy") or PREEMPTS
        for field, given, computed, noun in (
            ("priority", spec.get("priority"), value, "integer value of priority"),
            (
                "preemptionPolicy",
                spec.get("preemptionPolicy"),
                policy,
                "string value of PreemptionPolicy",
            ),
        ):
            if given is not None and given != computed:
                raise refused(
                    admission,
                    f"the {noun} ({given}) must not be provided in pod spec; priority admission "
                    f"controller computed {computed} from the given PriorityClass name",
                )
            spec = {**spec, field: computed}
        if name:
            spec = {**spec, "priorityClassName": name}
        return {**pod, "spec": spec}

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse a second class that is the default."""
        is_class = admission.is_of("scheduling.k8s.io", "PriorityClass")
        if not is_class or admission.subresource or not admission.new.get("globalDefault"):
            return
        default = await self._default(hub)
        if default is None:
            return
        if admission.is_create or name_of(default) != name_of(admission.new):
            raise refused(
                admission,
                f"PriorityClass {name_of(default)} is already marked as default. "
                "Only one default can exist",
            )

    async def _default(self, hub: HubState) -> Object | None:
        served = hub.catalog.get_storage("scheduling.k8s.io", "priorityclasses")
        page = await hub.store.range(served.prefix())
        classes = (forms.decode_stored(each, served.form) for each in page.items)
        defaults = [each for each in classes if each.get("globalDefault")]
        # Two that were made at the same moment may both have passed: the milder one counts.
        return min(defaults, key=lambda each: int(each.get("value") or 0), default=None)


class DefaultTolerationSeconds(Plugin):
    """Lets pods stay five minutes on a node that went away, unless they say otherwise."""

    name = "DefaultTolerationSeconds"

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Complete the tolerations of a new or changed pod."""
        return with_default_tolerations(admission.new) if is_pod(admission) else admission.new


class RuntimeClass(Plugin):
    """Gives new pods what the runtime they name costs and where it is to be found."""

    name = "RuntimeClass"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Merge the class into a new pod; one that runs on a member has had it merged there."""
        if not is_pod(admission) or not admission.is_create:
            return admission.new
        if self._is_hub and is_taken_over(admission):
            return admission.new
        pod = admission.new
        runtime = await self._class_of(hub, admission)
        if runtime is None:
            return pod
        overhead: Object | None = find_at(runtime, "overhead", "podFixed")
        if runtime.get("overhead") is not None:
            given: Object = find_at(pod, "spec", "overhead") or {}
            if given and not are_equal_amounts(given, overhead or {}):
                raise refused(admission, _OTHER_OVERHEAD)
            if overhead:
                pod = with_value(pod, overhead, "spec", "overhead")
        scheduling: Object | None = runtime.get("scheduling")
        if scheduling is None:
            return pod
        wanted: dict[str, str] = scheduling.get("nodeSelector") or {}
        selector: dict[str, str] = dict(find_at(pod, "spec", "nodeSelector") or {})
        for key, value in wanted.items():
            if selector.setdefault(key, value) != value:
                raise refused(
                    admission,
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {selector[key]}",
                )
        if selector:
            pod = with_value(pod, selector, "spec", "nodeSelector")
        own: list[Object] = find_at(pod, "spec", "tolerations") or []
        merged = merged_tolerations((*own, *(scheduling.get("tolerations") or ())))
        return with_value(pod, merged, "spec", "tolerations") if merged else pod

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse a pod that claims another overhead than its class has."""
        if not is_pod(admission) or not admission.is_create:
            return
        runtime = await self._class_of(hub, admission)
        given: Object | None = find_at(admission.new, "spec", "overhead")
        if runtime is not None and runtime.get("overhead") is not None:
            overhead: Object = find_at(runtime, "overhead", "podFixed") or {}
            if not are_equal_amounts(given or {}, overhead):
                raise refused(admission, _OTHER_OVERHEAD)
        elif given is not None:
            why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise refused(admission, f"pod rejected: {why}")

    async def _class_of(self, hub: HubState, admission: Admission) -> Object | None:
        name = find_at(admission.new, "spec", "runtimeClassName")
        if name is None:
            return None
        found = await find_object(hub, "node.k8s.io", "runtimeclasses", "", str(name))
        if found is None:
            raise refused(admission, f"pod rejected: RuntimeClass {quoted(str(name))} not found")
        return found


_OTHER_OVERHEAD: Final = (
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
)


def merged_tolerations(tolerations: tuple[Object, ...]) -> list[Object]:
    """Return the tolerations without those that another one includes; of equals, the first."""
    merged: list[Object] = []
    for index, each in enumerate(tolerations):
        later = (other for other in tolerations[index + 1 :] if other != each)
        if not any(_includes(other, each) for other in (*merged, *later)):
            merged.append(each)
    return merged


def _includes(wide: Object, narrow: Object) -> bool:
    """Whether a toleration tolerates all that another one does."""
    if wide == narrow:
        return True
    key, operator = wide.get("key") or "", wide.get("operator") or "Equal"
    if (narrow.get("key") or "") != key and (key or operator != "Exists"):
        return False
    effect = wide.get("effect") or ""
    if effect and (narrow.get("effect") or "") != effect:
        return False
    seconds = wide.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None:
        narrower = narrow.get("tolerationSeconds")
        if narrower is None or narrower > seconds:
            return False
    if operator == "Exists":
        return True
    is_equal = narrow.get("operator") == "Equal"
    return is_equal and (narrow.get("value") or "") == (wide.get("value") or "")
