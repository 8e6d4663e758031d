"""What a pod's PriorityClass means: the admission plug-in that looks it up."""

from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.kube.resources import GroupResource

_SYSTEM: Final = frozenset({"system-node-critical", "system-cluster-critical"})
"""Classes that every cluster has without an object; their values are set already."""


class PodPriorities(Plugin):
    """Gives new pods the priority of their class, or of the class that is the default."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Look at new pods; let everything else pass."""
        pod = admission.new
        if not admission.is_create or not admission.is_of("", "Pod") or admission.subresource:
            return pod
        name = str(find_at(pod, "spec", "priorityClassName") or "")
        if name in _SYSTEM:
            return pod
        served = hub.catalog.get_storage("scheduling.k8s.io", "priorityclasses")
        if name:
            entry = await hub.store.get(served.key("", name))
            if entry is None:
                why = f"no PriorityClass with name {name} was found"
                raise statuses.forbidden(GroupResource("", "pods"), name_of(pod), why)
            chosen = forms.decode_stored(entry, served.form)
        else:
            page = await hub.store.range(served.prefix())
            classes = (forms.decode_stored(each, served.form) for each in page.items)
            defaults = [each for each in classes if each.get("globalDefault")]
            if not defaults:
                return pod
            # Two defaults are a mistake, and the milder of them is taken, as Kubernetes does.
            chosen = min(defaults, key=lambda each: int(each.get("value") or 0))
        policy = chosen.get("preemptionPolicy") or "PreemptLowerPriority"
        spec: Object = {
            **pod["spec"],
            "priorityClassName": name_of(chosen),
            "priority": int(chosen.get("value") or 0),
            "preemptionPolicy": policy,
        }
        return {**pod, "spec": spec}
