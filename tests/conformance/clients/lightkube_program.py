"""lightkube: lists page by page, applies on a member, and watches what it wrote."""

import sys

from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

NAME = f"{sys.argv[1]}.clusterspace.east"

client = Client(namespace="default", field_manager="lightkube")
before = client.list(ConfigMap, chunk_size=1)
assert [each.metadata.name for each in before]
made = client.create(ConfigMap(metadata=ObjectMeta(name=NAME), data={"step": "made"}))
client.patch(ConfigMap, NAME, {"data": {"step": "patched"}}, patch_type=PatchType.MERGE)
seen = []
for kind, found in client.watch(ConfigMap, resource_version=before.resourceVersion):
    if found.metadata.name == NAME:
        seen.append((kind, found.data["step"]))
    if len(seen) == 2:
        break
assert seen == [("ADDED", "made"), ("MODIFIED", "patched")], seen
current = client.get(ConfigMap, NAME)
current.data["step"] = "replaced"
client.replace(current)
assert "".join(client.log("p.clusterspace.east", tail_lines=1))
assert client.get(Pod, "p.clusterspace.east").status.phase == "Running"
