"""The shared informers of a process: one for each collection of the hub, made on demand."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.background import Tasks
from clusterspace.controllers.caches import IndexKeys
from clusterspace.controllers.informers import Informer
from clusterspace.kube.resources import GroupVersionResource

T = TypeVar("T")


@runtime_checkable
class _Runnable(Protocol):
    async def run(self) -> None: ...


class HubCaches:
    """The informers of the hub that the controllers of a process share.

        clusters = caches.informer(CLUSTERS)
        bindings = caches.informer(RESOURCE_BINDINGS, indexes={"cluster": by_cluster})
        templates = caches.shared(TemplateInformers)

    Whoever asks for a collection first has its informer made; everybody gets the same one, and
    a collection nobody asks for is not watched. Reconcilers ask in their constructors: what is
    asked for once the caches run would never sync.
    """

    def __init__(self, hub: ClusterClient) -> None:
        self.hub = hub
        self._informers: dict[tuple[ResourcePath, ListOptions | None], Informer] = {}
        self._shared: dict[Callable[[HubCaches], Any], Any] = {}
        self._is_running = False

    def informer(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexKeys] | None = None,
    ) -> Informer:
        """Return the informer of a collection, with these indexes among others."""
        place = ResourcePath(resource, namespace)
        informer = self._informers.get((place, selection))
        if informer is None:
            self._require_not_running(place)
            informer = Informer(self.hub, place, selection=selection)
            self._informers[place, selection] = informer
        # Informers run only after all reconcilers are made, so no index and no handler is late.
        informer.cache.add_indexes(indexes or {})
        return informer

    def shared(self, make: "Callable[[HubCaches], T]") -> T:
        """Return the view that `make` builds of these caches, one for all who ask.

        It is for views that several controllers must share to be right, such as Works that were
        written and have not come back yet, or to be cheap. If the view has
        `run`, it runs with the caches.
        """
        if make not in self._shared:
            self._require_not_running(make)
            self._shared[make] = make(self)
        return self._shared[make]

    def tasks(self) -> Tasks:
        """Return the tasks that keep the caches up to date; no informer can be added after this."""
        self._is_running = True
        informers = {f"informer {key[0]}": each.run for key, each in self._informers.items()}
        views = {
            f"informer {type(each).__name__}": each.run
            for each in self._shared.values()
            if isinstance(each, _Runnable)
        }
        return {**informers, **views}

    def _require_not_running(self, asked: object) -> None:
        if self._is_running:
            raise RuntimeError(f"{asked} was asked for too late: ask in the constructor")
