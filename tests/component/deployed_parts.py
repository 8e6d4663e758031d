"""The parts as `deploy/` starts them: its command lines, with its files in a directory of a test.

What systemd and Kubernetes do with directories is done by hand: each part is run with the paths
that its unit or its container would give it, and a file it is not given is not in them.
"""

import asyncio
import configparser
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.component.audit_lines import lines_of

from clusterspace.roots.local.load_balancer import Answer, ask_ready
from clusterspace.testing.hubs import free_port
from clusterspace.testing.programs import Program

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PARTS = ("hub", "fleet", "controllers")
PATIENCE = 60.0


@dataclass(frozen=True)
class Deployment:
    """A control plane that runs: where its files are, and who its parts are at the hub."""

    directory: Path
    admin: Path
    fleet: Path
    identities: Mapping[str, Path]

    def writes(self) -> list[dict[str, Any]]:
        """Return who wrote what at the hub, and what came of it: its audit log."""
        log = self.admin.parent / "audit.log"
        return lines_of(log)

    def kubectl(self, *words: str, kubeconfig: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator at the fleet API server, or with another kubeconfig."""
        files = kubeconfig or os.pathsep.join((str(self.fleet), str(self.admin)))
        environment = {**os.environ, "KUBECONFIG": files, "HOME": str(self.directory)}
        return subprocess.run(
            ["kubectl", *words],
            capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment,
        )  # fmt: skip


def read_unit(file: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(file)
    return unit


@contextmanager
def started_by_systemd(directory: Path) -> Generator[Deployment]:
    """Start the three units, as the users they run as would see their files."""
    state = directory / "state"
    state.mkdir()
    identities: dict[str, Path] = {}
    with ExitStack() as stack:
        for part in PARTS:
            service = read_unit(DEPLOY / f"systemd/clusterspace-{part}.service")["Service"]
            given = directory / f"credentials-{part}"
            given.mkdir()
            for line in service.get("LoadCredential", "").splitlines():
                name, _, source = line.partition(":")
                identities[part] = given / name
                shutil.copy(source.replace("%S", str(state)), given / name)
            command = service["ExecStart"].replace("%S", str(state))
            command = command.replace("${CREDENTIALS_DIRECTORY}", str(given))
            stack.enter_context(running(directory, part, command.split()[1:]))
            wait_for_part(part, state)
        admin = state / "clusterspace/hub/kubeconfig"
        yield Deployment(directory, admin, state / "clusterspace-fleet/kubeconfig", identities)


@contextmanager
def started_by_kubernetes(directory: Path) -> Generator[Deployment]:
    """Start the three containers, each with the folders of the volume that it mounts."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes/clusterspace.yaml").read_text())
    pod = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]
    containers = {
        each["name"]: each for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
    }
    volume = directory / "volume"
    volume.mkdir()
    with ExitStack() as stack:
        for part in PARTS:
            words = [_mounted(each, containers[part], volume) for each in containers[part]["args"]]
            stack.enter_context(running(directory, part, words))
            wait_for_part(part, volume)
        identities = {part: volume / "hub/parts" / part / "kubeconfig" for part in PARTS[1:]}
        fleet = volume / "fleet/kubeconfig"
        yield Deployment(directory, volume / "hub/kubeconfig", fleet, identities)


def _mounted(word: str, container: Mapping[str, Any], volume: Path) -> str:
    """Return an argument with paths in the volume, as far as the container mounts it."""
    option, _, value = word.partition("=")
    if not value.startswith("/"):
        # The port of a test is free; and it listens on this machine only.
        return {"--port": "--port=0", "--host": "--host=127.0.0.1"}.get(option, word)
    for mount in container["volumeMounts"]:
        if mount["name"] == "data" and value.startswith(f"{mount['mountPath']}"):
            rest = value.removeprefix(mount["mountPath"])
            return f"{option}={volume / mount['subPath']}{rest}"
    raise AssertionError(f"{container['name']} mounts nothing at {value}")


class ReplicatedPod:
    """One pod of ha.yaml: hub, fleet API server and controllers, with a volume of its own."""

    def __init__(self, directory: Path, number: int, given: Mapping[str, str]) -> None:
        documents = yaml.safe_load_all((DEPLOY / "kubernetes/ha.yaml").read_text())
        pod = next(each for each in documents if each["kind"] == "StatefulSet")["spec"]["template"]
        spec = pod["spec"]
        self.name = f"clusterspace-{number}"
        self.volume = directory / self.name
        self.ports = {part: free_port() for part in ("hub", "fleet")}
        self._given = given
        """Values of options that name places of the cluster: where they are in the test."""
        self._directory = directory
        self._secrets = {
            each["name"]: directory / each["secret"]["secretName"]
            for each in spec["volumes"]
            if "secret" in each
        }
        self._containers = {
            each["name"]: each for each in (*spec["initContainers"], *spec["containers"])
        }
        self._programs: dict[str, Program] = {}

    def start(self) -> None:
        """Start its containers in their order."""
        for each in self._containers["authority"]["volumeMounts"]:
            if each["name"] == "data":
                (self.volume / each["subPath"]).mkdir(parents=True, exist_ok=True)
        script = self._containers["authority"]["command"][2]
        script = script.replace("/data", str(self.volume / "fleet"))
        script = script.replace("/authority", str(self._secrets["authority"]))
        subprocess.run(["sh", "-c", script], check=True, timeout=PATIENCE)
        for part in PARTS:
            self._start(part)
            if part in self.ports:
                wait_for(lambda part=part: self.is_ready(part), f"{self.name}: {part} is ready")

    def stop(self) -> None:
        """Ask its containers to end, the hub last, as the kubelet does."""
        for part in reversed(PARTS):
            if part in self._programs:
                self._programs[part].terminate()
                assert self._programs.pop(part).wait(PATIENCE) == 0

    def is_ready(self, part: str) -> bool:
        """Ask what the readiness probe asks."""
        assert self._programs[part].poll() is None, self._log(part).read_text()[-4000:]
        return asyncio.run(ask_ready(self.ports[part])) is Answer.READY

    def _log(self, part: str) -> Path:
        return self._directory / f"{self.name}-{part}.log"

    def _start(self, part: str) -> None:
        container = self._containers[part]
        own = {"--host": "127.0.0.1", "--port": str(self.ports.get(part, 0)), **self._given}
        words: list[str] = []
        for word in container["args"]:
            option, _, value = word.partition("=")
            if option in own:
                words.append(f"{option}={own[option]}")
            elif f"{part} {option}" in own:
                words.append(f"{option}={own[f'{part} {option}']}")
            elif value.startswith("/"):
                words.append(f"{option}={self._place(container, value)}")
            else:
                words.append(word)
        near = {f"CLUSTERSPACE_{each.upper()}_ALLOW_MEMBER_CIDRS": "127.0.0.0/8" for each in PARTS}
        kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        self._programs[part] = Program(
            "clusterspace", words, log=self._log(part), environment={**kept, **near}
        )

    def _place(self, container: Mapping[str, Any], path: str) -> Path:
        for mount in container["volumeMounts"]:
            rest = path.removeprefix(mount["mountPath"])
            if rest != path and mount["name"] in self._secrets:
                return self._secrets[mount["name"]] / rest.lstrip("/")
            if rest != path and mount["name"] == "data":
                return self.volume / mount["subPath"] / rest.lstrip("/")
        raise AssertionError(f"{container['name']} mounts nothing at {path}")


@contextmanager
def running(directory: Path, part: str, words: list[str]) -> Generator[None]:
    """Run a part until the block ends."""
    log = directory / f"{part}.log"
    free = {"CLUSTERSPACE_HUB_PORT": "0", "CLUSTERSPACE_FLEET_PORT": "0"}
    near = {f"CLUSTERSPACE_{each.upper()}_ALLOW_MEMBER_CIDRS": "127.0.0.0/8" for each in PARTS}
    kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    environment = {**kept, **free, **near}
    process = Program("clusterspace", words, log=log, directory=directory, environment=environment)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait_for_part(part: str, files: Path) -> None:
    """Wait until the files of a part say that it is ready; the controllers write none."""
    ready = {"hub": ("hub/kubeconfig", "clusterspace/hub/kubeconfig"),
             "fleet": ("fleet/kubeconfig", "clusterspace-fleet/kubeconfig")}  # fmt: skip
    if part in ready:
        wait_for(lambda: any((files / each).exists() for each in ready[part]), f"{part} is ready")


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g}s: {what}"
        time.sleep(0.1)
