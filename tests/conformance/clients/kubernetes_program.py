"""The official client: lists, writes on a member, watches what it wrote, and runs a command."""

import sys

from kubernetes import client, config, watch
from kubernetes.stream import stream

NAME = f"{sys.argv[1]}.clusterspace.east"

config.load_kube_config()
core = client.CoreV1Api()
before = core.list_namespaced_config_map("default")
made = core.create_namespaced_config_map(
    "default", {"metadata": {"name": NAME}, "data": {"step": "made"}}
)
core.patch_namespaced_config_map(NAME, "default", {"data": {"step": "patched"}})
seen = []
events = watch.Watch()
for event in events.stream(
    core.list_namespaced_config_map,
    "default",
    resource_version=before.metadata.resource_version,
    timeout_seconds=20,
):
    if event["object"].metadata.name == NAME:
        seen.append((event["type"], event["object"].data["step"]))
    if len(seen) == 2:
        events.stop()
assert seen == [("ADDED", "made"), ("MODIFIED", "patched")], seen

current = core.read_namespaced_config_map(NAME, "default")
current.data = {"step": "replaced"}
core.replace_namespaced_config_map(NAME, "default", current)

pod = "p.clusterspace.east"
said = stream(
    core.connect_get_namespaced_pod_exec, pod, "default", command=["hostname"], stdout=True
)
assert said.strip() == "p", said
assert core.read_namespaced_pod_log(pod, "default", tail_lines=1)
