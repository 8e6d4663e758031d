"""The wheel, in an environment that has what it asks for and nothing else."""

import os
import signal
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "clusterspace"
UNREACHABLE = ("Temporary failure in name resolution", "No route to host", "Connection refused")

IMPORT_EVERYTHING = """
import importlib, pkgutil, clusterspace
found = pkgutil.walk_packages(clusterspace.__path__, "clusterspace.")
names = [each.name for each in found if not each.name.startswith("clusterspace.testing")]
for name in names:
    if name != "clusterspace.__main__":
        importlib.import_module(name)
print(len(names))
"""


def build(kind: str, directory: Path, source: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory"]
    subprocess.run(
        [*command, str(directory)], cwd=source, check=True, capture_output=True, timeout=120
    )
    (built,) = directory.iterdir()
    return built


def asked_for(requirements: list[str]) -> Iterator[Distribution]:
    """Yield what these requirements need, with what that needs in turn."""
    waiting, seen = list(requirements), set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if canonicalize_name(requirement.name) not in seen:
            seen.add(canonicalize_name(requirement.name))
            found = distribution(requirement.name)
            waiting.extend(found.requires or ())
            yield found


def make_environment(directory: Path, wheel: Path) -> Path:
    """Make an environment of what the wheel asks for, linked from ours; return its programs."""
    venv.create(directory, symlinks=True, with_pip=False)
    (packages,) = directory.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        said = Parser().parsestr(archive.read(metadata).decode())
    for found in asked_for(said.get_all("Requires-Dist", [])):
        for file in found.files or ():
            if ".." not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(found.locate_file(file))))
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python"), "install"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", wheel], check=True, capture_output=True, timeout=120
    )
    return directory / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return make_environment(tmp_path_factory.mktemp("environment"), wheel)


def run(program: Path, *arguments: str, cwd: Path) -> str:
    """Run a program as somebody would who has just installed it."""
    clean = {"HOME": str(cwd), "PATH": os.defpath}
    command = [str(program), *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def hub_becomes_ready(programs: Path, directory: Path) -> bool:
    command = [str(programs / "clusterspace"), "hub", "--data-dir", "data", "--port", "0"]
    clean = {"HOME": str(directory), "PATH": os.defpath}
    with subprocess.Popen(command, cwd=directory, env=clean, stderr=subprocess.PIPE) as hub:
        deadline = time.monotonic() + 60
        while not (directory / "data" / "kubeconfig").exists() and hub.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        was_running = hub.poll() is None
        hub.send_signal(signal.SIGTERM)
        _, said = hub.communicate(timeout=30)
    assert hub.returncode == 0, said.decode()
    return was_running


def test_everything_that_is_read_at_run_time_is_in_the_wheel(wheel: Path) -> None:
    kept = {
        f"clusterspace/{path.relative_to(DATA)}"
        for path in DATA.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as archive:
        assert kept <= set(archive.namelist())


def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = build("sdist", tmp_path / "archive")
    subprocess.run(["tar", "xzf", archive, "-C", tmp_path], check=True, timeout=60)
    (source,) = tmp_path.glob("clusterspace-*")

    again = build("wheel", tmp_path / "again", source)

    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def test_it_starts_without_development_dependencies(programs: Path, tmp_path: Path) -> None:
    assert "Run a fleet" in run(programs / "clusterspace", "--help", cwd=tmp_path)
    assert "kubectl clusterspace" in run(programs / "kubectl-clusterspace", "--help", cwd=tmp_path)
    assert hub_becomes_ready(programs, tmp_path)


def test_every_module_but_the_test_kit_imports_without_them(programs: Path, tmp_path: Path) -> None:
    assert int(run(programs / "python", "-c", IMPORT_EVERYTHING, cwd=tmp_path)) > 200


@pytest.mark.slow
def test_pip_installs_it_from_a_registry_into_an_empty_environment(
    wheel: Path, tmp_path: Path
) -> None:
    place = tmp_path / "environment"
    venv.create(place, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]

    done = subprocess.run(
        [*pip, str(wheel)], capture_output=True, text=True, check=False, timeout=120
    )

    if any(each in done.stderr for each in UNREACHABLE):
        pytest.skip("no package registry can be reached from here")
    assert done.returncode == 0, done.stderr
    assert hub_becomes_ready(place / "bin", tmp_path)
