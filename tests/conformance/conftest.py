"""What conformance tests get: one hub or cluster per module, and a hub's log when it is needed."""

import itertools
from collections.abc import AsyncGenerator, Generator

import pytest
import pytest_asyncio
from tests.conformance.controller_stage import Room, nodeless_cluster
from tests.conformance.hubs import RunningHub, running_hub

from clusterspace.client.resources import ClusterClient

_rooms = itertools.count(1)


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningHub]:
    """Run a hub for the tests of one module; tests keep apart by namespaces of their own."""
    with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def hub(shared_hub: RunningHub) -> Generator[RunningHub]:
    """Give the module's hub, and fail the test during which it logged an error."""
    before = len(shared_hub.errors())
    yield shared_hub
    errors = shared_hub.errors()[before:]
    assert not errors, "the hub logged errors:\n" + "\n".join(errors)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sim", "real"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[ClusterClient]:
    """Run a cluster without nodes for the tests of one module: a simulated and a real one."""
    directory = tmp_path_factory.mktemp("cluster")
    async with nodeless_cluster(request.param, directory) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def room(cluster: ClusterClient) -> Room:
    """Give a namespace of the module's cluster that nobody used before."""
    found = Room(cluster, f"room-{next(_rooms)}")
    await found.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace}}
    )
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the hub's log under a failure."""
    report = yield
    hub = getattr(item, "funcargs", {}).get("shared_hub")
    if report.failed and isinstance(hub, RunningHub):
        report.sections.append(("hub log", hub.last_words()))
    return report
