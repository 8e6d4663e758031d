"""What conformance tests get: one hub per module, and its log when something goes wrong."""

from collections.abc import Generator

import pytest
from tests.conformance.hubs import RunningHub, running_hub


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
