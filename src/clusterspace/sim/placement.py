"""Which pods are on which node, and what they take up; kept as pods come and go."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from clusterspace.kube.objects import Object, find_at
from clusterspace.sim.mirror import Key, Mirror, key_of
from clusterspace.sim.pod_states import is_finished
from clusterspace.sim.scheduling import Room, request_of


class Placement:
    """A watcher of the mirror that counts as it goes: choosing a node looks at no other pod."""

    def __init__(self, mirror: Mirror) -> None:
        self._on_node: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        self._node_of: dict[Key, str] = {}
        self._used: defaultdict[str, Room] = defaultdict(Room)
        mirror.watch(self._see)

    @property
    def used(self) -> Mapping[str, Room]:
        """What the pods of each node take up."""
        return self._used

    def on_node(self, node: str) -> Collection[Object]:
        """Return the pods of a node that have not ended."""
        return self._on_node.get(node, {}).values()

    def _see(self, kube_object: Object, is_gone: bool) -> None:
        if kube_object["kind"] != "Pod":
            return
        key = key_of(kube_object)
        self._take_off(key)
        node = find_at(kube_object, "spec", "nodeName")
        if node and not is_gone and not is_finished(kube_object):
            self._node_of[key] = node
            self._on_node[node][key] = kube_object
            self._used[node] += request_of(kube_object)

    def _take_off(self, key: Key) -> None:
        node = self._node_of.pop(key, None)
        if node is not None:
            self._used[node] -= request_of(self._on_node[node].pop(key))
