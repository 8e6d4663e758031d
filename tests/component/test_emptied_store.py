"""A hub whose store was emptied by others, and what the audit log of an idle fleet holds."""

import shutil
from pathlib import Path

import pytest
from tests.component.audit_lines import lines_of
from tests.unit.controllers.test_leases import lease

from clusterspace.apis.identities import COMPONENTS, CONTROLLERS_LEASE
from clusterspace.apiserver.http.audit_policy import default_policy
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import ApiError, StoreUnreadable
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.hub import running_hub
from clusterspace.roots.installation import back_up, restore
from clusterspace.roots.settings import HubSettings

LEASE = ResourcePath(LEASES, "kube-system", CONTROLLERS_LEASE)


@pytest.mark.sqlite("it empties the file")
async def test_a_store_without_a_byte_beside_certificates_does_not_start_as_an_empty_hub(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.db"
    async with running_hub(HubSettings(data)):
        pass
    back_up(data, backup)
    store = data / "store.db"
    store.write_bytes(b"")

    with pytest.raises(StoreUnreadable, match="store restore") as refusal:
        async with running_hub(HubSettings(data)):
            pytest.fail("it started")

    assert store.read_bytes() == b""
    # What it says to do, done.
    aside = str(refusal.value).partition("(mv ")[2].partition(")")[0].split()[1]
    shutil.move(store, aside)
    restore(backup, data)
    async with running_hub(HubSettings(data)):
        pass


async def test_a_start_that_was_cut_short_before_the_store_was_made_is_no_emptied_store(
    tmp_path: Path,
) -> None:
    (tmp_path / "store.db").touch()

    async with running_hub(HubSettings(tmp_path)):
        pass


@pytest.mark.parametrize("renewals", [False, True])
async def test_renewed_leases_are_not_audited_by_default_and_the_rest_is_by_name(
    tmp_path: Path, renewals: bool
) -> None:
    settings = HubSettings(tmp_path, audit=default_policy(renewals=renewals))
    async with running_hub(settings) as hub:
        controllers = hub.installation.component_kubeconfig("controllers")
        fleet = hub.installation.component_kubeconfig("fleet")
        async with (
            open_client(hub_settings(controllers)) as client,
            open_client(hub_settings(fleet)) as stranger,
        ):
            body = {**lease("me"), "apiVersion": LEASES.api_version, "kind": "Lease"}
            body["metadata"] = {"name": LEASE.name, "namespace": LEASE.namespace}
            made = await client.create(LEASE.collection, body)
            for _ in range(3):
                made = await client.update(LEASE, made)
            with pytest.raises(ApiError):
                await stranger.update(LEASE, made)
    lines = lines_of(tmp_path / "audit.log")
    found = [(each["user"], each["verb"], each["code"]) for each in lines]

    ours, theirs = COMPONENTS["controllers"], COMPONENTS["fleet"]
    renewed = [(ours, "update", 200)] * 3 if renewals else []
    assert found == [(ours, "create", 201), *renewed, (theirs, "update", 403)]
