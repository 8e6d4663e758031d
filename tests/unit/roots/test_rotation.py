"""Authorities and keys are replaced file by file: what a kill between two of them leaves behind."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import read_bundle
from clusterspace.roots import rotation
from clusterspace.roots.installation import Installation
from clusterspace.roots.rotation import (
    AuthorityRoll,
    CannotRotate,
    Roll,
    Site,
    Stage,
    TokenKeyRoll,
    plan,
)

NOW = SystemClock().now()


class Killed(BaseException):
    """The process is no more."""


def installed(directory: Path) -> Installation:
    made = Installation(directory)
    made.prepare(NOW, ("127.0.0.1",))
    made.token_keys()
    return made


def rolls_of(installation: Installation) -> list[Roll]:
    return [AuthorityRoll(installation, "hub"), TokenKeyRoll(installation)]


def go_on(roll: Roll) -> None:
    """Do what `certs rotate` does, without the waits."""
    if roll.stage() is Stage.IDLE:
        roll.make(NOW)
    if roll.stage() is Stage.MADE:
        roll.trust()
    if roll.stage() is Stage.TRUSTED:
        roll.sign()
    roll.drop()


@pytest.mark.parametrize("kind", ["authority", "key"])
def test_a_replaced_one_signs_alone_in_the_end(tmp_path: Path, kind: str) -> None:
    installation = installed(tmp_path)
    roll = rolls_of(installation)[0 if kind == "authority" else 1]
    before = installation.load_authorities(), installation.token_keys()
    go_on(roll)
    after = installation.load_authorities(), installation.token_keys()

    assert roll.stage() is Stage.IDLE
    assert (before[0].key_ids != after[0].key_ids) is (kind == "authority")
    assert (before[1].signing.key_id != after[1].signing.key_id) is (kind == "key")
    assert (after[0].others, after[1].others) == ((), ())


def kills(monkeypatch: pytest.MonkeyPatch, before: int) -> Iterator[None]:
    """Have the process killed before its file operation of this number."""
    done = 0

    def counted(operation: Callable[..., None]) -> Callable[..., None]:
        def run(*args: object, **options: object) -> None:
            nonlocal done
            done += 1
            if done > before:
                raise Killed
            operation(*args, **options)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(rotation, "write_private", counted(rotation.write_private))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        yield


@pytest.mark.parametrize("kind", ["authority", "key"])
def test_a_kill_anywhere_leaves_what_works_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    was_killed, number = True, 0
    while was_killed:
        installation = installed(tmp_path / f"{kind}-{number}")
        roll = rolls_of(installation)[0 if kind == "authority" else 1]
        before = installation.load_authorities(), installation.token_keys()
        was_killed = False
        for _ in kills(monkeypatch, number):
            try:
                go_on(roll)
            except Killed:
                was_killed = True

        # A server that is started right now: it trusts who signs, and its certificate is theirs.
        installation.prepare(NOW, ("127.0.0.1",))
        assert_shows(installation)
        authorities, keys = installation.load_authorities(), installation.token_keys()
        assert authorities.signing.key_id in authorities.key_ids
        if roll.stage() in (Stage.MADE, Stage.TRUSTED):
            assert before[0].signing.key_id in authorities.key_ids
            assert before[1].signing.key_id in keys.by_id

        if was_killed:
            go_on(roll)
        assert roll.stage() is Stage.IDLE
        assert len(installation.load_authorities().key_ids) == 1
        assert len(installation.token_keys().by_id) == 1
        number += 1

    assert number > 5, "it was killed between any two of its steps"


def assert_shows(installation: Installation) -> None:
    """Whoever trusts the published authorities trusts the server's certificate."""
    trusted = read_bundle(installation.authority_file.read_bytes())
    leaf, *chain = x509.load_pem_x509_certificates(installation.server_files[0].read_bytes())
    verifier = (
        PolicyBuilder().store(Store(list(trusted))).build_server_verifier(x509.DNSName("localhost"))
    )
    verifier.verify(leaf, chain)


def test_who_trusts_the_old_authority_alone_trusts_the_server_of_the_new_one(
    tmp_path: Path,
) -> None:
    installation = installed(tmp_path)
    old = installation.authority_file.read_bytes()
    go_on(AuthorityRoll(installation, "hub"))
    installation.prepare(NOW, ("127.0.0.1",))

    leaf, *chain = x509.load_pem_x509_certificates(installation.server_files[0].read_bytes())
    for trusted in (old, installation.authority_file.read_bytes()):
        store = Store(list(read_bundle(trusted)))
        verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName("localhost"))
        verifier.verify(leaf, chain)
    assert [each.subject for each in chain] == [leaf.issuer]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*installation.server_files)


def test_authorities_that_an_operator_added_stay(tmp_path: Path) -> None:
    installation, other = installed(tmp_path / "own"), installed(tmp_path / "other")
    foreign = other.authority_file.read_bytes()
    bundle = installation.authority_file.read_bytes() + foreign
    installation.authority_file.write_bytes(bundle)

    go_on(AuthorityRoll(installation, "hub"))

    kept = installation.load_authorities()
    assert other.load_authorities().signing.key_id in kept.key_ids
    assert len(kept.key_ids) == 2


def test_a_plan_says_how_far_each_is_and_changes_nothing(tmp_path: Path) -> None:
    hub = installed(tmp_path / "hub")
    installed(tmp_path / "fleet")
    AuthorityRoll(hub, "hub").make(NOW)

    found = plan(tmp_path)

    assert [stage for _, stage in found] == [Stage.MADE, Stage.IDLE, Stage.IDLE]
    assert plan(tmp_path) == found


def test_a_directory_without_authorities_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRotate, match="no data directory"):
        Site.find(tmp_path)


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    roll = AuthorityRoll(installed(tmp_path), "hub")
    roll.note_file.write_text("{")
    with pytest.raises(CannotRotate, match=r"ca-rotation\.json"):
        roll.stage()
