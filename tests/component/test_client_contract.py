from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from clusterspace.client.resources import ClusterClient
from clusterspace.testing.client_contract import ClientContract
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    async with (
        hub_for_test(tmp_path_factory.mktemp("hub")) as settings,
        client_for_test(settings) as hub_client,
    ):
        yield hub_client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    async with (
        real_server_for_test(tmp_path_factory.mktemp("real")) as server,
        client_for_test(server.settings) as real_client,
    ):
        yield real_client


class TestAgainstOurHub(ClientContract):
    @pytest.fixture
    def member_client(self, hub_client: ClusterClient) -> ClusterClient:
        return hub_client


class TestAgainstARealServer(ClientContract):
    @pytest.fixture
    def member_client(self, real_client: ClusterClient) -> ClusterClient:
        return real_client
