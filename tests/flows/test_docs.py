"""The documentation, as a stranger follows it: every command is typed, every output compared."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flows.likeness import find_differences
from tests.flows.pages import DOCS, ROOT, Mode, UnreadablePage, read_steps
from tests.flows.terminals import PATIENCE_SECONDS, Terminal

from clusterspace.roots.processes import LIFELINE
from clusterspace.testing.quick_commands import quick_commands

SHARED = (
    "guides/drain.md",  # before the quick start scales and promotes what it shows
    "quick-start.md",
    "concepts.md",
    "guides/propagate.md",
    "guides/staged-rollouts.md",
    "guides/take-over.md",
    "guides/migrate-a-cluster.md",
    "guides/watch-and-debug.md",
    "guides/search.md",
    "guides/join-push.md",
    "guides/join-pull.md",
    "guides/member-cluster.md",
    "guides/security-model.md",
    "guides/admission.md",
    "guides/fairness.md",
    "guides/users-and-logins.md",
    "guides/hardening.md",
    "guides/logs-and-audit.md",
    "guides/alerts.md",
    "guides/from-karmada.md",
    "guides/from-kubefleet.md",
    "guides/troubleshooting.md",
    "guides/page.md",
)
"""Pages that leave the fleet as they found it, or change only what no other page looks at."""
EXAMPLES = sorted(
    f"../examples/{page.parent.name}/README.md" for page in (ROOT / "examples").glob("*/README.md")
)
ALONE = ("guides/backup-and-restore.md",)
ON_A_SERVER = (
    "guides/install.md",
    "guides/upgrade.md",
    "guides/kubernetes-hub.md",
)
"""Pages for machines with systemd, users and a registry: what they type is parsed, not run."""
WITHOUT_STEPS = (
    "README.md",
    "comparison.md",
    "fleet-verbs.md",
    "guides/autoscaling.md",
    "guides/cluster-consumers.md",
    "guides/failover.md",
    "guides/interpreters.md",
    "guides/moves.md",
    "guides/quotas.md",
    "guides/services-between-clusters.md",
    "guides/sizing.md",
    "migration-proofs.md",
    "simulated-member.md",
    "whose-objects.md",
)
NEEDS = {"guides/users-and-logins.md": "openssl"}
"""Programs beside kubectl and our own that a page uses."""
ELSEWHERE = {
    "architecture.md", "conformance.md", "dependencies.md", "glossary.md", "identities.md",
    "karmada-compatibility.md", "kubectl.md", "kubefleet-compatibility.md",
    "kubernetes-compatibility.md", "member-clusters.md", "resource-versions.md",
    "writing-tests.md", "guides/encryption.md", "guides/rotation.md",
    "guides/single-sign-on.md", "guides/beyond-one-machine.md",
}  # fmt: skip
"""Pages about the tree, or written and checked by a test of their own."""

QUICKER = ("GOGC", "GOMEMLIMIT", "SSL_CERT_FILE")
"""What `tests/conftest.py` has programs spare."""


def environment(directory: Path) -> dict[str, str]:
    """Return what a reader's shell has: our commands, and free ports instead of the usual ones."""
    programs = f"{quick_commands()}:{Path(sys.executable).parent}"
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(directory),
        LIFELINE: os.environ[LIFELINE],
        # The tree that is tested may be another than the one that is installed.
        **{name: os.environ[name] for name in ("PYTHONPATH", *QUICKER) if name in os.environ},
        "CLUSTERSPACE_UP_HUB_PORT": "0",
        "CLUSTERSPACE_UP_FLEET_PORT": "0",
    }


def clusterspace(directory: Path, *words: str) -> None:
    done = subprocess.run(
        [quick_commands() / "clusterspace", *words],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def start_fleet(directory: Path) -> None:
    """Start what `make up` starts; once more if a port that was free a moment ago is not."""
    try:
        clusterspace(directory, "up", "--demo", "--detach")
    except AssertionError as error:
        if "is in use" not in str(error):
            raise
        shutil.rmtree(directory / ".clusterspace")
        clusterspace(directory, "up", "--demo", "--detach")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the fleet of `make up`, and return the directory it was started in."""
    directory = tmp_path_factory.mktemp("fleet")
    start_fleet(directory)
    try:
        yield directory
    finally:
        clusterspace(directory, "down")


def follow(page: str, directory: Path) -> None:
    terminal = Terminal(directory, environment(directory))
    try:
        for step in read_steps(DOCS / page):
            terminal.follow(step)
    finally:
        terminal.close()


@pytest.mark.parametrize("page", [*SHARED, *EXAMPLES])
def test_a_page_works_as_written(page: str, fleet: Path, tmp_path: Path) -> None:
    if page in NEEDS and shutil.which(NEEDS[page]) is None:
        pytest.skip(f"{NEEDS[page]} is not on the PATH")
    (tmp_path / ".clusterspace").symlink_to(fleet / ".clusterspace")
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    follow(page, tmp_path)


@pytest.mark.parametrize("page", ALONE)
def test_a_page_about_a_fleet_of_its_own_works_as_written(page: str, tmp_path: Path) -> None:
    try:
        follow(page, tmp_path)
    finally:
        clusterspace(tmp_path, "down")


def test_every_page_is_followed_by_a_test() -> None:
    pages = {str(each.relative_to(DOCS)) for each in DOCS.rglob("*.md")}
    ours = {each for each in pages if not each.startswith(("reference/", "decisions/"))}

    assert ours - ELSEWHERE == {*SHARED, *ALONE, *ON_A_SERVER, *WITHOUT_STEPS}


@pytest.mark.parametrize("page", ON_A_SERVER)
def test_what_a_page_types_on_a_server_can_be_parsed_and_names_files_that_exist(page: str) -> None:
    """Verbs, options and variables of ours are compared by tests/meta/test_docs.py."""
    typed = "\n".join(step.commands for step in read_steps(DOCS / page))

    parsed = subprocess.run(
        ["sh", "-n"],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    ours = set(re.findall(r"(?<![\w/])(?:deploy/[\w./-]+|requirements[\w.-]*\.lock)", typed))
    units = set(re.findall(r"(?<![\w/])clusterspace-(?:hub|fleet|controllers|agent)\b", typed))

    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert typed
    assert [each for each in ours if not (ROOT / each).exists()] == []
    assert [u for u in units if not (ROOT / f"deploy/systemd/{u}.service").exists()] == []


@pytest.mark.parametrize("page", WITHOUT_STEPS)
def test_a_page_that_is_not_followed_has_no_commands(page: str) -> None:
    assert read_steps(DOCS / page) == []


def test_every_example_has_a_page_that_the_list_of_them_names() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    directories = [each for each in (ROOT / "examples").iterdir() if each.is_dir()]

    assert len(directories) == len(EXAMPLES)
    assert all(f"({each.name}/README.md)" in listed for each in directories)


@pytest.mark.parametrize("page", [*SHARED, *EXAMPLES, *ALONE])
def test_few_commands_are_left_out_and_each_has_a_reason(page: str) -> None:
    left_out = [each for each in read_steps(DOCS / page) if each.mode is Mode.NOT_RUN]

    assert all(len(each.detail.split()) >= 4 for each in left_out)
    assert len(left_out) <= 2


def test_a_link_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [*DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []


def page_of(directory: Path, text: str) -> Path:
    page = directory / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "shown", ["one three", "one", "one two\nmore"], ids=["word", "less", "more"]
)
def test_a_page_that_shows_what_is_not_printed_fails(shown: str, tmp_path: Path) -> None:
    page = page_of(tmp_path, f"```sh\necho one two\n```\n\n```\n{shown}\n```\n")
    terminal = Terminal(tmp_path, environment(tmp_path))

    with pytest.raises(AssertionError, match=r"page.md:1: (?s:.*)shown, not printed"):
        terminal.follow(read_steps(page)[0])


def test_a_reader_may_wait_for_words_before_pressing_ctrl_c(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        "<!-- background until said exists -->\n```sh\ntouch said; sleep 0.3; echo one two > said; "
        "sleep 60\n```\n<!-- interrupt once said says one two -->\n```sh\ncat said\n```\n\n"
        "```\none two\n```\n",
    )
    terminal = Terminal(tmp_path, environment(tmp_path))

    for step in read_steps(page):
        terminal.follow(step)


def test_a_page_whose_command_fails_fails(tmp_path: Path) -> None:
    step = read_steps(page_of(tmp_path, "```sh\nls nowhere\n```\n"))[0]

    with pytest.raises(AssertionError, match="ended with 2"):
        Terminal(tmp_path, environment(tmp_path)).follow(step)


@pytest.mark.parametrize(
    "text", ["```bash\nls\n```\n", "<!-- not run -->\n```sh\nls\n```\n"], ids=["language", "why"]
)
def test_a_command_cannot_hide_from_the_test(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadablePage):
        read_steps(page_of(tmp_path, text))


def test_ages_and_hashes_may_differ_and_nothing_else() -> None:
    shown = "web-5q4l9g7vwv-bbbxd.clusterspace.member1  1/1  Running  0  8s"

    assert not find_differences(shown, "web-9lss88rqj8-j25wf.clusterspace.member1 1/1 Running 0 3m")
    assert find_differences(shown, "web-9lss88rqj8-j25wf.clusterspace.member2 1/1 Running 0 3m")
    assert find_differences(shown, "web-9lss88rqj8-j25wf.clusterspace.member1 0/1 Running 0 3m")
    assert find_differences(shown, "cart-9lss88rqj8-j25wf.clusterspace.member1 1/1 Running 0 3m")
