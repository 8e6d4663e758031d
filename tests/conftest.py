"""What every test gets: `tests` importable, deterministic property tests, and four guards.

A test fails that leaves a task running when its loop ends, that logs an error nobody expects, or
that leaves a socket open (a ResourceWarning, and warnings are errors). One that provokes errors
says so by taking `logged_errors`, and sees them there. A test that hangs is ended, and says
where all its tasks and threads wait.
"""

import asyncio
import atexit
import contextlib
import faulthandler
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import Any, Final

import hypothesis
import pytest
import pytest_asyncio.plugin
import structlog

from clusterspace.roots.processes import LIFELINE
from clusterspace.testing.etcd import hubs_on_etcd
from clusterspace.testing.hub_stores import ETCD, end_namespaces_soon

# A red run must be repeatable by whoever looks at it next, and is over soon; new examples, and
# many of them, are the slow suite's job (`make robustness`).
hypothesis.settings.register_profile("default", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("explore", derandomize=False, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("default")

# What was compiled once is kept, whatever the shell says: every worker and hundreds of processes
# would compile all of it again, which takes longer than most of what they do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell has what it starts in the background ignore Ctrl-C, and with it all that is started there:
# tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs written in Go, kubectl and kube-apiserver, have memory enough for the time they run.
os.environ.setdefault("GOGC", "off")
os.environ.setdefault("GOMEMLIMIT", "600MiB")

# Nobody here is trusted because of the authorities of the machine, of which there are a hundred
# and more: whoever makes a TLS context, as aiohttp does when it is imported, need not read them.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# Kubernetes' five seconds for every namespace that is deleted are shown once, and waited for never.
end_namespaces_soon()

_errors: list[str] = []


STORE: Final = "CLUSTERSPACE_TEST_STORE"
"""`etcd` has every hub of the tests keep its objects in one etcd, each under its own prefix."""


@pytest.fixture(autouse=os.environ.get(STORE) == "etcd", scope="session")
def _hubs_on_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with hubs_on_etcd(tmp_path_factory.mktemp("etcd")):
        yield


@pytest.fixture(autouse=True)
def _hubs_on_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the hubs of tests that are about the file itself on SQLite; each says why."""
    marker = request.node.get_closest_marker("sqlite")
    if marker is not None:
        (why,) = marker.args
        assert why
        monkeypatch.delenv(ETCD, raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector look at tests, and not at the thousands that wait their turn.

    Nor often: most of what a test makes goes with its last reference, before the next look at it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(200_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker begin to collect elsewhere, so that a file is compiled once and not by all.

    In a new clone no test is compiled yet, which takes longer than to import it. Workers that go
    through the same files side by side would all find nothing, and each would compile everything.
    """
    report = yield
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker and isinstance(collector, pytest.Directory) and report.outcome == "passed":
        first = worker * len(report.result) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*report.result[first:], *report.result[:first]]
    return report


_LONGEST_FIRST: Final = ("robustness", "conformance", "flows", "component", "attacks")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the directories whose files take longest, and end with thousands of short tests.

    Workers take a file each, so that what a file shares is started once. The last of them then
    end together. All have the same order, wherever they began to collect.
    """
    order = {name: place for place, name in enumerate(_LONGEST_FIRST)}

    def place_of(item: pytest.Item) -> tuple[int, str]:
        file = item.nodeid.partition("::")[0]
        return order.get(file.split("/", 2)[1], len(order)), file

    items.sort(key=place_of)


# Many times what the longest test takes on a busy machine; slow suites take what they need.
_HANGS_AFTER: Final = 240.0
_stderr = 2


def pytest_configure() -> None:
    """Keep the way to the terminal, which pytest takes away while a test runs."""
    global _stderr
    _stderr = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that hangs, and say where all its tasks and threads wait.

    Should it swallow the failure, or its end hang too, the process ends a little later: xdist
    reports the test and starts another worker.
    """
    if any(item.iter_markers("slow")) or any(item.iter_markers("bench")):
        return (yield)

    def fail(*_: object) -> None:
        with open(_stderr, "w", closefd=False) as terminal:
            print(f"\n{item.nodeid} hangs:", file=terminal)
            with contextlib.suppress(RuntimeError):
                for task in asyncio.all_tasks():
                    task.print_stack(file=terminal)
            terminal.flush()
            faulthandler.dump_traceback(terminal)
        pytest.fail(f"hangs: no end after {_HANGS_AFTER:.0f} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, _HANGS_AFTER)
    faulthandler.dump_traceback_later(_HANGS_AFTER + 60, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _hold_lifeline() -> None:
    """Have every process of ours that a test starts end with this one, even if that is killed."""
    directory = tempfile.mkdtemp(prefix="lifeline-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.environ[LIFELINE] = os.path.join(directory, "pipe")
    os.mkfifo(os.environ[LIFELINE])
    # For reading too, or opening would wait for a reader; it is closed when we are no more.
    os.open(os.environ[LIFELINE], os.O_RDWR)


_hold_lifeline()


def _note_error(
    _: Any, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if method in ("error", "exception", "critical"):
        _errors.append(" ".join(f"{key}={value}" for key, value in event.items()))
    return event


class _ErrorHandler(logging.Handler):
    """Notes what the standard library logs; asyncio reports lost exceptions there."""

    def emit(self, record: logging.LogRecord) -> None:
        _errors.append(f"{record.name}: {record.getMessage()}")


def _configure_logs() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _note_error,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Not wherever it is at the time: a command that is run within a test writes elsewhere, and
        # what hubs log beside it is not what it says.
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        cache_logger_on_first_use=False,
    )


@pytest.fixture
def logged_errors() -> list[str]:
    """Return the errors that a test provokes, as they are logged."""
    return _errors


@pytest.fixture(autouse=True)
def _no_unexpected_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    _configure_logs()
    handler = _ErrorHandler(logging.ERROR)
    logging.getLogger().addHandler(handler)
    _errors.clear()
    yield
    logging.getLogger().removeHandler(handler)
    errors = list(_errors)
    _errors.clear()
    if errors and "logged_errors" not in request.fixturenames:
        pytest.fail("errors were logged that the test does not expect:\n" + "\n".join(errors[:10]))


class _WatchedRunner:
    """Says at the end of a loop which tasks it had to cancel.

    The loop is asyncio's unless a test asks for another: a clock that is turned by hand looks at
    its queue to see that all tasks have come to rest, and uvloop does not show its own.
    """

    def __init__(self, **options: Any) -> None:
        self._runner = asyncio.Runner(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def __enter__(self) -> "_WatchedRunner":
        self._runner.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        left = [repr(task) for task in asyncio.all_tasks(self._runner.get_loop())]
        self._runner.close()
        if left:
            pytest.fail("tasks were left running:\n" + "\n".join(left[:10]))


# The loops of tests are made by the plug-in, which offers no other place to look at their end.
setattr(pytest_asyncio.plugin, "Runner", _WatchedRunner)  # noqa: B010
