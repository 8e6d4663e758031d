"""Who hears of what became of a manifest."""

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.client.places import Place
from clusterspace.controllers.events import EventRecorder
from clusterspace.fleet.execution.report import Finding
from clusterspace.fleet.execution.telling import Teller
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

WORK = {
    "apiVersion": "work.karmada.io/v1alpha1",
    "kind": "Work",
    "metadata": {"name": "w", "namespace": "karmada-es-west", "uid": "1"},
}
MANIFEST = config_map("conf", annotations={stamps.TEMPLATE_UID: "2"})


class Hub:
    """Takes events, and remembers what they are about."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def create(self, _place: Place, event: Object, _options: object = None) -> Object:
        self.told.append((event["involvedObject"]["kind"], event["reason"]))
        return event


async def hear(*, tells_templates: bool) -> list[tuple[str, str]]:
    hub = Hub()
    events = EventRecorder(hub, component="test", clock=SystemClock())  # pyright: ignore[reportArgumentType]
    teller = Teller(events, "west", tells_templates=tells_templates)
    teller.tell_findings(WORK, [Finding(MANIFEST, problem="no room")])
    teller.tell_drift(WORK, MANIFEST, "data.a")
    await events.flush()
    return sorted(hub.told)


async def test_work_and_template_hear_of_trouble_and_drift() -> None:
    assert await hear(tells_templates=True) == [
        ("ConfigMap", "DriftRepaired"),
        ("ConfigMap", "SyncFailed"),
        ("Work", "DriftRepaired"),
        ("Work", "SyncFailed"),
    ]


async def test_an_agent_tells_the_work_alone() -> None:
    assert await hear(tells_templates=False) == [
        ("Work", "DriftRepaired"),
        ("Work", "SyncFailed"),
    ]
