"""Pod Security: the labels of a namespace say what its pods may ask of their nodes.

What `enforce` does not allow is refused where pods run. A hub runs none: there it is a warning, for
pods and for the templates of workloads, so that their author hears it before a member says no.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.identity.following import find_object, list_objects
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.pod_security import (
    LABELS,
    PRIVILEGED,
    LevelVersion,
    Policy,
    read_policy,
    violations,
)
from clusterspace.errors import Cause
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.objects import Object, find_at, labels_of, metadata_of, name_of

_TEMPLATES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): ("spec", "template"),
}
"""Where kinds that make pods have what pods are made of."""

_LOOKED_AT: Final = frozenset({"", "ephemeralcontainers", "resize"})
"""Subresources of a pod that may change what it asks for."""
_MOST_PODS: Final = 3000
"""Pods that a change of a policy is tried on."""
_TRIED_AT_ONCE: Final = 100


class PodSecurity(Plugin):
    """Holds pods against the policy of their namespace."""

    name = "PodSecurity"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Look at pods, at what makes pods, and at the policies themselves."""
        info, new, old = admission.served.info, admission.new, admission.old
        kind = (info.group, info.kind)
        if kind == ("", "Namespace"):
            if not admission.subresource:
                await self._check_policy(hub, admission)
            return
        if kind == ("", "Pod"):
            if admission.subresource not in _LOOKED_AT:
                return
            if old is not None and not _has_other_images(new, old):
                return
            template: Object | None = new
        elif kind in _TEMPLATES and not admission.subresource:
            template = find_at(new, *_TEMPLATES[kind])
        else:
            return
        if template is None:
            return
        namespace = await find_object(hub, "", "namespaces", "", admission.namespace)
        policy, _ = read_policy(labels_of(namespace or {}))
        if not policy.is_privileged:
            self._judge(admission, policy, template, is_pod=kind == ("", "Pod"))

    def _judge(
        self, admission: Admission, policy: Policy, template: Object, *, is_pod: bool
    ) -> None:
        refusal = _broken(policy.enforce, template) if is_pod or self._is_hub else ""
        if is_pod:
            admission.annotate(f"{LABELS}enforce-policy", str(policy.enforce))
        if noted := _broken(policy.audit, template):
            text = f"would violate PodSecurity {quoted(str(policy.audit))}: {noted}"
            admission.annotate(f"{LABELS}audit-violations", text)
        if refusal and is_pod and not self._is_hub:
            text = f"violates PodSecurity {quoted(str(policy.enforce))}: {refusal}"
            raise refused(admission, text)
        warned = {policy.warn: _broken(policy.warn, template)}
        if self._is_hub:
            warned = {policy.enforce: refusal, **warned}
        for asked, broken in warned.items():
            if broken:
                admission.warn(f"would violate PodSecurity {quoted(str(asked))}: {broken}")

    async def _check_policy(self, hub: HubState, admission: Admission) -> None:
        """Refuse labels that mean nothing; try a stricter policy on the pods that are there."""
        policy, wrong = read_policy(labels_of(admission.new))
        if admission.old is None:
            _refuse_labels(admission, wrong)
            return
        before, was_wrong = read_policy(labels_of(admission.old))
        if wrong != was_wrong:
            _refuse_labels(admission, wrong)
        new, old = policy.enforce, before.enforce
        is_looser = new.minor == old.minor and new.strictness <= old.strictness
        if new == old or new.level == PRIVILEGED or is_looser:
            return
        pods = await list_objects(hub, "", "pods", name_of(admission.new))
        name = name_of(admission.new)
        if len(pods) > _TRIED_AT_ONCE:
            texts = await off_loop(admission.user.name, lambda: list(_tried(name, new, pods)))
        else:
            texts = list(_tried(name, new, pods))
        for text in texts:
            admission.warn(text)


def _refuse_labels(admission: Admission, wrong: tuple[Cause, ...]) -> None:
    if wrong:
        raise statuses.invalid(admission.served.info.group_kind, name_of(admission.new), wrong)


def _broken(asked: LevelVersion, template: Object) -> str:
    return ", ".join(map(str, violations(asked, template)))


def _tried(namespace: str, asked: LevelVersion, pods: list[Object]) -> Iterator[str]:
    """Return the warnings about pods that are there and would not be let in any more.

    Of pods that one controller made, the first is looked at before the others: they are alike.
    """
    first: list[Object] = []
    others: list[Object] = []
    seen: set[str] = set()
    for pod in pods:
        owners = cast("list[Object]", metadata_of(pod).get("ownerReferences") or [])
        owner = next((str(each.get("uid")) for each in owners if each.get("controller")), "")
        (others if owner in seen else first).append(pod)
        seen |= {owner} - {""}
    chosen = [*first, *others][:_MOST_PODS]
    if len(chosen) < len(pods):
        checked = f"{len(chosen)} of {len(pods)} existing pods"
        yield f"new PodSecurity enforce level only checked against the first {checked}"
    broken: dict[str, list[str]] = {}
    for pod in chosen:
        if reasons := ", ".join(each.reason for each in violations(asked, pod)):
            broken.setdefault(reasons, []).append(name_of(pod))
    if broken:
        yield (
            f"existing pods in namespace {quoted(namespace)} violate the new PodSecurity enforce "
            f"level {quoted(str(asked))}"
        )
    texts: list[str] = []
    for reasons, names in broken.items():
        more = len(names) - 1
        others_text = f" (and {more} other pod{'s' if more > 1 else ''})" if more else ""
        texts.append(f"{min(names)}{others_text}: {reasons}")
    yield from sorted(texts)


def _has_other_images(new: Object, old: Object) -> bool:
    """Whether a change of a pod is one that is looked at: nothing else that counts can change."""
    for field in ("containers", "initContainers"):
        after = cast("list[Object]", find_at(new, "spec", field) or [])
        before = cast("list[Object]", find_at(old, "spec", field) or [])
        if [each.get("image") for each in after] != [each.get("image") for each in before]:
            return True
    known = {
        each.get("name"): each.get("image")
        for each in cast("list[Object]", find_at(old, "spec", "ephemeralContainers") or [])
    }
    debugging = cast("list[Object]", find_at(new, "spec", "ephemeralContainers") or [])
    return any(
        each.get("name") not in known or each.get("image") != known[each.get("name")]
        for each in debugging
    )
