import subprocess
from pathlib import Path

import pytest
from tests.conformance.kubectl_stage import find_program
from tests.conformance.real_kubernetes import TOKEN, RealKubernetes, running_kubernetes, wait_until

from clusterspace.apis import crds
from clusterspace.apis.crds import definitions
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at, name_of

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory):
    with running_kubernetes(tmp_path_factory.mktemp("real")) as running:
        yield running


def _is_established(kubernetes: RealKubernetes, name: str) -> bool:
    held = kubernetes.get(f"{CRDS}/{name}")
    return is_true(find_at(held, "status", "conditions"), "Established")


def test_a_real_kubernetes_takes_and_serves_every_definition_of_ours(kubernetes):
    for definition in definitions():
        kubernetes.create(CRDS, definition)
    for definition in definitions():
        name = name_of(definition)
        wait_until(lambda name=name: _is_established(kubernetes, name))
        spec = kubernetes.get(f"{CRDS}/{name}")["spec"]
        assert spec == definition["spec"], f"{name} is stored as something else than it says"


def test_kubectl_takes_the_directory_as_it_is(kubernetes, tmp_path):
    command = [find_program("kubectl"), f"--server={kubernetes.url}", f"--token={TOKEN}"]
    command += ["--insecure-skip-tls-verify", f"--cache-dir={tmp_path}"]
    files = Path(crds.__file__).parent
    done = subprocess.run(
        [*command, "apply", "-f", str(files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(definitions())
