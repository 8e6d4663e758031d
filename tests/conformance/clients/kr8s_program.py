"""kr8s: writes on a member, waits, and reaches into a pod through a forwarded port."""

import sys

import httpx
import kr8s
from kr8s.objects import ConfigMap, Pod

NAME = f"{sys.argv[1]}.clusterspace.east"

api = kr8s.api()
made = ConfigMap({"metadata": {"name": NAME, "namespace": "default"}, "data": {"step": "made"}})
made.create()
made.patch({"data": {"step": "patched"}})
listed = [each.name for each in kr8s.get("configmaps", namespace="default")]
assert NAME in listed, listed
made.refresh()
assert made.raw["data"] == {"step": "patched"}

pod = Pod.get("p.clusterspace.east", namespace="default")
pod.wait("condition=Ready", timeout=20)
with pod.portforward(remote_port=80) as port:
    page = httpx.get(f"http://127.0.0.1:{port}/x", timeout=20)
assert "default/p:80 GET /x" in page.text, page.text
assert "".join(pod.logs(tail_lines=1))
made.patch({"data": {"step": "replaced"}})
