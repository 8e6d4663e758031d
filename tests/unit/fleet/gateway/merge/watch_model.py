"""Clusters that are lists in memory, and the stream a gateway makes of them, one step at a time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clusterspace.errors import Expired
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.events import PlainStyle, Style
from clusterspace.fleet.gateway.merge.lists import ClusterList, read_cluster_list
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.routes import Naming, Subject
from clusterspace.testing.watch_histories import ClusterLog, Event, Logged, Segment, read_event

MAPS = Subject("", "v1", "configmaps")


def selects(labels: Mapping[str, str]) -> bool:
    return labels["side"] == "left"


def naming_of(cluster: str) -> Naming:
    return Naming(cluster, qualifies_names=True)


@dataclass
class FakeCluster:
    """An API server as far as a list and a watch go."""

    name: str
    revision: int = 10
    compacted: int = 0
    changes: list[Logged] = field(default_factory=list[Logged])
    page_size: int = 2
    _uids: int = 0

    @property
    def log(self) -> ClusterLog:
        return ClusterLog(self.changes, selects, forgotten=self.compacted)

    @property
    def present(self) -> dict[str, Logged]:
        found = {each.key: each for each in self.changes}
        return {key: each for key, each in found.items() if each.labels is not None}

    def touch(self, key: str, side: str | None) -> None:
        """Create, change, or with no side delete an object."""
        held = self.present.get(key)
        if side is None and held is None:
            return
        self.revision += 1
        self._uids += held is None
        uid = held.uid if held else f"{self.name}-{self._uids}"
        labels = None if side is None else {"side": side}
        self.changes.append(Logged(self.revision, key, uid, labels))

    def compact(self) -> None:
        self.compacted = self.revision

    def pages(self) -> list[ClusterList]:
        """Return a list, page by page, of what is selected now."""
        listed = [each for _, each in sorted(self.present.items()) if selects(each.labels or {})]
        starts = range(0, max(len(listed), 1), self.page_size)
        return [self._page(listed, start) for start in starts]

    def _page(self, listed: list[Logged], start: int) -> ClusterList:
        end = start + self.page_size
        metadata = {"resourceVersion": str(self.revision)}
        if end < len(listed):
            metadata["continue"] = "more"
        items = [_object(each) for each in listed[start:end]]
        body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}
        return read_cluster_list(msgspec.json.encode(body), naming_of(self.name))

    def events_after(self, version: str) -> list[bytes]:
        """Return the lines of a watch from a version on; 410 when it is forgotten."""
        if int(version) < self.compacted:
            return [line_of("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})]
        by_revision = {each.revision: each for each in self.changes}
        return [
            line_of(each.type, _typed(by_revision[each.revision], each.uid))
            for each in self.log.between(int(version), self.revision)
        ]

    def bookmark(self) -> bytes:
        return line_of("BOOKMARK", bookmark_object(str(self.revision)))


def line_of(event_type: str, shown: Any) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": shown}) + b"\n"


def bookmark_object(version: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version}}


def _object(change: Logged) -> dict[str, Any]:
    namespace, _, name = change.key.partition("/")
    metadata = {"name": name, "namespace": namespace, "uid": change.uid}
    return {"metadata": {**metadata, "resourceVersion": str(change.revision)}}


def _typed(change: Logged, uid: str) -> dict[str, Any]:
    shown = _object(change)
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {**shown["metadata"], "uid": uid}}


class FakeStream:
    """What surrounds the merger, with every step in the hands of a test."""

    def __init__(
        self,
        clusters: Iterable[FakeCluster],
        vector: str = "",
        *,
        wants_bookmarks: bool = False,
        wants_initial_end: bool = False,
        style: Callable[[], Style] = lambda: PlainStyle(MAPS),
    ) -> None:
        self.clusters = {each.name: each for each in clusters}
        self._segment = Segment((), vector, wants_bookmarks, wants_initial_end)
        self.merger = WatchMerger(
            style(), wants_bookmarks=wants_bookmarks, wants_initial_end=wants_initial_end
        )
        self.lines: list[bytes] = []
        self._pages: dict[str, list[ClusterList]] = {}
        self._read: dict[str, list[bytes]] = {}
        positions = versions.decode(vector, list(self.clusters)) if vector else {}
        if "" in positions.values():
            raise Expired("only a part was told")
        for name in self.clusters:
            if name in positions:
                self.merger.follow(naming_of(name), positions[name])
            else:
                self.merger.splice(naming_of(name), is_awaited=True)

    def step(self, name: str) -> None:
        """Let one thing come from a cluster: a page, or an event, or the news that all is known."""
        if not self.merger.position(name):
            self._step_list(name)
            return
        if not self._read.get(name):
            self._read[name] = self.clusters[name].events_after(self.merger.position(name))
        if self._read[name]:
            self._feed(name, self._read[name].pop(0))

    def _step_list(self, name: str) -> None:
        if not self._pages.get(name):
            self._pages[name] = self.clusters[name].pages()
            self.merger.begin_list(name)
        self.write(name, self.merger.feed_page(name, self._pages[name].pop(0)))

    def _feed(self, name: str, line: bytes) -> None:
        try:
            self.write(name, self.merger.feed(name, line))
        except Expired:
            self.merger.expire(name)

    def write(self, name: str, lines: list[bytes]) -> None:
        """Pass on what the merger returned, at once."""
        self.lines += lines

    def bookmark_from(self, name: str) -> None:
        """Let a cluster tell how far it is, once everything before that has been read."""
        while self.merger.position(name) and self.clusters[name].log.between(
            int(self.merger.position(name)), self.clusters[name].revision
        ):
            self.step(name)
        if self.merger.position(name):
            self._feed(name, self.clusters[name].bookmark())

    def disconnect(self, name: str) -> None:
        """Lose what a cluster had sent and was not read; a list begins anew."""
        self._read.pop(name, None)
        self._pages.pop(name, None)

    def join(self, cluster: FakeCluster) -> None:
        self.clusters[cluster.name] = cluster
        self.merger.splice(naming_of(cluster.name))

    def catch_up(self) -> None:
        """Let every cluster tell all it has."""
        for name, cluster in self.clusters.items():
            while self.merger.position(name) != str(cluster.revision):
                if self.merger.position(name):
                    self.bookmark_from(name)
                else:
                    self.step(name)

    @property
    def events(self) -> list[Event]:
        return [read_event(line) for line in self.lines]

    def segment(self, *, is_whole: bool = False) -> Segment:
        held = self._segment
        return Segment(
            self.events, held.vector, held.wants_bookmarks, held.wants_initial_end, is_whole
        )
