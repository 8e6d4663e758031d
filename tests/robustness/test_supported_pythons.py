"""Every Python that we support and that is installed: set-up as in the README, then the tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
SECONDS = 1200


def installed(version: str) -> str | None:
    """Return the interpreter of a version, if one is installed that starts."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return found if said.stdout.startswith(f"Python {version}.") else None


@pytest.mark.slow
@pytest.mark.parametrize("version", SUPPORTED)
def test_unit_and_meta_tests_pass_on_every_python_that_is_here(
    version: str, tmp_path: Path
) -> None:
    python = installed(version)
    if python is None:
        pytest.skip(f"python{version} is not installed")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    env = ["sh", "tools/make_env.sh", python, "requirements-dev.lock"]
    subprocess.run(env, cwd=clone, check=True, timeout=SECONDS)

    tests = [".venv/bin/python", "-m", "pytest", "-q", "tests/unit", "tests/meta"]
    done = subprocess.run(
        tests, cwd=clone, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:]


def test_the_package_says_from_which_python_on() -> None:
    assert f'requires-python = ">={SUPPORTED[0]}"' in (ROOT / "pyproject.toml").read_text()
