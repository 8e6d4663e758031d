"""Who a part is at the hub: which file it takes, what is in it, what it says when it has more."""

from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from clusterspace.apis.identities import COMPONENTS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import UnusableKubeconfig
from clusterspace.roots.clients import component_settings, read_pem
from clusterspace.roots.installation import Installation
from clusterspace.roots.processes import warn_of_full_rights

NOW = 1_800_000_000.0


def installed(directory: Path) -> Installation:
    """Write what a hub writes when it is ready."""
    installation = Installation(directory)
    authority = installation.prepare(NOW, ())
    installation.write_component_kubeconfigs(authority, "https://127.0.0.1:5443", NOW)
    installation.write_kubeconfig(authority, "https://127.0.0.1:5443", NOW)
    return installation


def settings_in(file: Path) -> ConnectionSettings:
    return read_kubeconfig([file]).settings(cluster="hub")


def serial_of(settings: ConnectionSettings) -> int:
    return x509.load_pem_x509_certificate(read_pem(settings.identity.certificate)).serial_number


@pytest.mark.parametrize("part", COMPONENTS)
def test_a_part_is_in_no_group(part: str, tmp_path: Path) -> None:
    found = settings_in(installed(tmp_path).component_kubeconfig(part))

    assert organizations(read_pem(found.identity.certificate)) == ()


def test_writing_them_again_renews_the_certificates(tmp_path: Path) -> None:
    installation = installed(tmp_path)
    before = serial_of(settings_in(installation.component_kubeconfig("fleet")))

    installed(tmp_path)

    assert serial_of(settings_in(installation.component_kubeconfig("fleet"))) != before


@pytest.mark.parametrize("hub", [".clusterspace", ".clusterspace/hub"])
def test_beside_a_local_hub_a_part_takes_its_own_file_and_not_the_administrators(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = installed(tmp_path / hub).component_kubeconfig("controllers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert serial_of(component_settings("controllers", None)) == serial_of(settings_in(own))


def test_where_the_hub_wrote_nothing_for_a_part_the_administrators_file_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / ".clusterspace").component_kubeconfig("fleet").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)

    with pytest.raises(UnusableKubeconfig, match="parts/fleet/kubeconfig"):
        component_settings("fleet", None)


def test_a_part_with_an_administrators_kubeconfig_says_so_and_names_its_own(
    tmp_path: Path,
) -> None:
    installation = installed(tmp_path)
    with capture_logs() as logged:
        warn_of_full_rights("fleet", settings_in(installation.component_kubeconfig("fleet")))
        assert logged == []
        warn_of_full_rights("fleet", settings_in(installation.kubeconfig))

    (line,) = logged
    assert line["log_level"] == "warning"
    assert "parts/fleet/kubeconfig" in line["instead"]
