"""ClusterResourcePlacements: what their authors left out is filled in, what cannot be is refused.

What they select must be served, and of a scope that can be selected: everything else would only
show later, on a placement that places nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from clusterspace.apis import fleet_placements
from clusterspace.apis.fleet_placement_rules import completed_placement, placement_causes
from clusterspace.apis.fleet_placements import NAMESPACE_WITH_SELECTORS
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of
from clusterspace.kube.resources import ResourceInfo

_NAMESPACE: Final = ("", "v1", "Namespace")

_KnownKinds: TypeAlias = Mapping[tuple[str, str, str], ResourceInfo]
"""What is served, by group, version and kind."""


class PlacementRules:
    """Completes and checks ClusterResourcePlacements."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Complete and check a placement; other objects pass."""
        is_one = admission.is_of(fleet_placements.GROUP, fleet_placements.KIND)
        if not is_one or admission.subresource:
            return admission.new
        if metadata_of(admission.old or {}).get("deletionTimestamp"):
            return admission.new  # no rule may keep one from going
        infos = (served.info for served in hub.catalog.all())
        known = {(info.group, info.version, info.kind): info for info in infos}

        def checked() -> Object:
            placement = completed_placement(admission.new)
            found = (*placement_causes(placement, admission.old), *_kind_causes(known, placement))
            if found:
                raise statuses.invalid(admission.served.info.group_kind, name_of(placement), found)
            return placement

        return await admission.run(checked)


def _kind_causes(known: _KnownKinds, placement: Object) -> Iterator[Cause]:
    selectors: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    is_partial = any(_is_partial(each) for each in selectors)
    for index, each in enumerate(selectors):
        field = f"spec.resourceSelectors[{index}]"
        kind = str(each.get("kind") or "")
        info = known.get(_kind_of(each))
        if info is None:
            version = "/".join(filter(None, (each.get("group"), each.get("version"))))
            yield causes.invalid(f"{field}.kind", kind, f"the hub serves no {kind} of {version}")
        elif info.namespaced and not is_partial:
            why = "is namespaced: select its Namespace, and what is in it goes along"
            yield causes.invalid(f"{field}.kind", kind, why)


def _is_partial(selector: Object) -> bool:
    return (
        _kind_of(selector) == _NAMESPACE
        and selector.get("selectionScope") == NAMESPACE_WITH_SELECTORS
    )


def _kind_of(selector: Object) -> tuple[str, str, str]:
    group, version, kind = (str(selector.get(each) or "") for each in ("group", "version", "kind"))
    return group, version, kind
