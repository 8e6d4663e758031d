"""Every test of the HTTP server runs on both event loops, and fails on an error nobody expected."""

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest
import structlog
from tests.component.serving.certificates import Authority
from tests.component.serving.wire import LoggedErrors, Pki

from clusterspace.aio.event_loop import new_event_loop


def pytest_asyncio_loop_factories() -> dict[str, object]:
    return {"ours": new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def logged_errors(caplog: pytest.LogCaptureFixture) -> Iterator[LoggedErrors]:
    with structlog.testing.capture_logs() as entries:
        errors = LoggedErrors(entries)
        yield errors
        # asyncio reports forgotten exceptions when their task is collected. What one test made is
        # young still; to look at everything there is would take longer than most of these tests.
        gc.collect(1)
        assert errors.unexpected() == []
    unexpected = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert unexpected == []


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("pki")
    authority = Authority(directory)
    authority.issue("server", host="127.0.0.1")
    authority.issue("renewed", host="127.0.0.1")
    alice = authority.issue("alice", user="alice", group="system:masters")
    Authority(directory, "stranger-ca").issue("mallory", user="mallory")
    return Pki(directory, alice)
