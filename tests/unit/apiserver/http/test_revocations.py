"""Which credentials a list of revoked ones refuses."""

import json

import pytest

from clusterspace.apiserver.http.revocations import (
    NOTHING_REVOKED,
    RevocationList,
    read_revocations,
    user_key,
)
from clusterspace.apiserver.http.users import BACKDATED_SECONDS, CertificateLogin, User
from clusterspace.kube.times import format_time
from clusterspace.roots.revocations import CannotRevoke, Revocation

NOW = 1_700_000_000.0


def login(
    name: str = "jane", issued: float = NOW, fingerprint: str = "ab" * 32, serial: int = 255
) -> CertificateLogin:
    starts = issued - BACKDATED_SECONDS
    return CertificateLogin(User(name), starts, NOW + 3600, fingerprint, serial)


def listed(*revocations: Revocation) -> RevocationList:
    return read_revocations({each.key: json.dumps(each.entry) for each in revocations})


def test_nothing_is_revoked_by_an_empty_list() -> None:
    assert not NOTHING_REVOKED.covers(login())
    assert read_revocations(None) == NOTHING_REVOKED


@pytest.mark.parametrize(
    "revocation",
    [
        Revocation.of_fingerprint("AB:" * 31 + "AB"),
        Revocation.of_fingerprint("X509SHA256=" + "ab" * 32),
        Revocation.of_serial("00:FF"),
        Revocation.of_serial("0xff"),
        Revocation.of_user("jane", NOW),
        Revocation.of_all("jane"),
    ],
)
def test_a_certificate_is_revoked_by_what_names_it(revocation: Revocation) -> None:
    revoked = listed(revocation)

    assert revoked.covers(login())
    assert not revoked.covers(login("joe", fingerprint="cd" * 32, serial=254))


def test_a_certificate_that_is_issued_later_counts() -> None:
    revoked = listed(Revocation.of_user("jane", NOW))

    assert revoked.covers(login(issued=NOW - 1))
    assert not revoked.covers(login(issued=NOW + 1))
    assert not revoked.denies("jane")


def test_whoever_is_denied_is_denied_whenever_it_was_issued() -> None:
    revoked = listed(Revocation.of_all("jane"))

    assert revoked.denies("jane")
    assert revoked.covers(login(issued=NOW + 10**6))


@pytest.mark.parametrize(
    ("key", "text", "is_covered"),
    [
        ("certificate-" + "ab" * 32, "not JSON", True),
        ("serial-ff", "", True),
        ("serial-no", "{}", False),
        (user_key("jane"), '{"user":"jane","before":"soon"}', True),
        (user_key("jane"), "not JSON", False),
        # Under another's key: who may write one entry must not revoke another user unseen.
        (user_key("joe"), '{"user":"jane","all":true}', False),
        ("something-else", '{"user":"jane","all":true}', False),
    ],
)
def test_what_cannot_be_read_revokes_by_its_key_or_nothing(
    key: str, text: str, is_covered: bool
) -> None:
    assert read_revocations({key: text}).covers(login()) is is_covered


@pytest.mark.parametrize("text", ["", "ab", "xyz", "ab" * 31])
def test_what_names_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(CannotRevoke):
        Revocation.of_fingerprint(text)


def test_a_file_without_a_certificate_is_refused() -> None:
    with pytest.raises(CannotRevoke, match="no client certificate"):
        Revocation.of_certificate(b"-----BEGIN NOTHING-----")
    with pytest.raises(CannotRevoke):
        Revocation.of_serial("0")
    assert format_time(NOW) in str(Revocation.of_user("jane", NOW).entry)
