"""Objects as members hold them: stamped, and with a record of who wrote what."""

from typing import Any

from clusterspace.apis import stamps
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import is_built_in, normalize
from clusterspace.builtins.schemas import schema_for
from clusterspace.kube.managed_fields.managers import Write, track_update
from clusterspace.kube.objects import Object, annotations_of, labels_of, with_metadata
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schemas.model import ANYTHING

WORK_ID = "0d7c8a52-0000-4000-8000-000000000001"


def ordered(manifest: Object, *, resolution: str = "abort", **labels: str) -> Object:
    """Return a manifest with the stamps of a Work."""
    stamped = {**labels_of(manifest), stamps.MANAGED: "true", stamps.WORK_ID: WORK_ID, **labels}
    annotations = {**annotations_of(manifest), stamps.CONFLICT_RESOLUTION: resolution}
    return with_metadata(manifest, labels=stamped, annotations=annotations)


def written(
    new: Object, manager: str, live: Object | None = None, *, subresource: str = ""
) -> Object:
    """Return an object as a server stores it after a write: with defaults, and with owners."""
    kind = GroupVersionKind.of(new["apiVersion"], new["kind"])
    blank: Object = {}
    if is_built_in(kind):
        blank = normalize({}, kind).object
        new = apply_defaults(kind, normalize(new, kind).object)
    write = Write(
        manager=manager,
        now="2026-01-01T00:00:00Z",
        api_version=new["apiVersion"],
        subresource=subresource,
        schema=schema_for(kind.group, kind.version, kind.kind) or ANYTHING,
        blank=blank,
    )
    return track_update(live, new, write)


def gadget(**spec: Any) -> Object:
    """Return an object of a kind nobody has a schema for."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": spec,
    }
