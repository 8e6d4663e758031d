from pathlib import Path

import msgspec
import pytest

from clusterspace.client.kubeconfig import in_cluster_settings, read_kubeconfig
from clusterspace.client.settings import REREAD_SECONDS, Credentials
from clusterspace.errors import UnusableKubeconfig
from clusterspace.testing.clocks import ManualClock

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Return what a pod finds mounted."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("team-a")
    return tmp_path


def test_a_pod_reaches_its_own_cluster(mounted: Path):
    settings = in_cluster_settings(POD, cluster="here", files=mounted)
    ipv6 = in_cluster_settings(
        {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, cluster="here", files=mounted
    )

    assert settings.server == "https://10.0.0.1:443"
    assert ipv6.server == "https://[fd00::1]:443"
    assert settings.namespace == "team-a"
    assert settings.identity.token_file == mounted / "token"


def test_outside_a_pod_there_is_no_in_cluster_connection(tmp_path: Path):
    with pytest.raises(UnusableKubeconfig, match="this is not a pod"):
        in_cluster_settings({}, cluster="here", files=tmp_path)
    with pytest.raises(UnusableKubeconfig, match="no service account token"):
        in_cluster_settings(POD, cluster="here", files=tmp_path)


async def test_a_token_file_is_read_again_after_a_minute_and_outlives_its_file(mounted: Path):
    clock = ManualClock()
    credentials = Credentials(in_cluster_settings(POD, cluster="here", files=mounted), clock)
    seen = [(await credentials.get()).authorization]
    (mounted / "token").write_text("second\n")
    seen.append((await credentials.get()).authorization)
    await clock.advance(REREAD_SECONDS)
    seen.append((await credentials.get()).authorization)
    (mounted / "token").unlink()
    await clock.advance(REREAD_SECONDS)
    seen.append((await credentials.get()).authorization)

    assert seen == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


def test_files_that_do_not_exist_are_passed_over_unless_none_does(tmp_path: Path):
    there = tmp_path / "config"
    there.write_bytes(msgspec.yaml.encode({"current-context": "x"}))

    assert read_kubeconfig([tmp_path / "nope", there]).current_context == "x"
    with pytest.raises(UnusableKubeconfig, match="there is no such file"):
        read_kubeconfig([tmp_path / "nope"])
