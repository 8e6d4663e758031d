"""Policies, bindings and works carry an ID that outlives every rename and rewrite.

Others find them by it: an object whose ID is lost or replaced looks like an orphan, and orphans
get cleaned up. So it is given once, put back when somebody leaves it out, and never changed.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, labels_of, name_of, with_metadata

LABELS: Final[Mapping[tuple[str, str], str]] = {
    ("policy.karmada.io", "PropagationPolicy"): "propagationpolicy.karmada.io/permanent-id",
    (
        "policy.karmada.io",
        "ClusterPropagationPolicy",
    ): "clusterpropagationpolicy.karmada.io/permanent-id",
    ("work.karmada.io", "ResourceBinding"): "resourcebinding.karmada.io/permanent-id",
    ("work.karmada.io", "ClusterResourceBinding"): "clusterresourcebinding.karmada.io/permanent-id",
    ("work.karmada.io", "Work"): "work.karmada.io/permanent-id",
}


class PermanentIds:
    """Gives IDs to new objects and keeps those of old ones."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Give, put back, or refuse to change."""
        info, new = admission.served.info, admission.new
        label = LABELS.get((info.group, info.kind))
        if label is None:
            return new
        held = labels_of(admission.old).get(label) if admission.old is not None else None
        given = labels_of(new).get(label)
        if held and given and given != held:
            cause = causes.invalid(f"metadata.labels[{label}]", given, "field is immutable")
            raise statuses.invalid(info.group_kind, name_of(new), (cause,))
        if given:
            return new
        return with_metadata(new, labels={**labels_of(new), label: held or hub.new_uid()})
