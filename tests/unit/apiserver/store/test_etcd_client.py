"""Which etcd is trusted, which addresses are taken, and what bytes mean."""

import pytest

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdSettings, version_trouble
from clusterspace.errors import MalformedObject, UnusableConfiguration
from clusterspace.kube.protobuf.wire import write_bytes_field, write_varint_field
from clusterspace.testing.etcd import refusal_of_range, refusal_of_txn, refusal_of_watch


@pytest.mark.parametrize(
    ("version", "trusted"),
    [
        ("3.3.27", False),
        ("3.4.30", False),
        ("3.4.31", True),
        ("3.5.1", False),
        ("3.5.12", False),
        ("3.5.13", True),
        ("3.6.0", True),
        ("3.7.0-rc.1", True),
        ("4.0.0", True),
        ("", True),
    ],
)
def test_versions_that_lose_data_are_not_trusted(version: str, trusted: bool) -> None:
    trouble = version_trouble(version)
    assert (trouble == "") == trusted
    assert trusted or "lose what they acknowledged" in trouble


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        (EtcdSettings(()), "--etcd-servers"),
        (EtcdSettings(("10.0.0.1:2379",)), "--etcd-servers"),
        (EtcdSettings(("https://10.0.0.1:2379/path",)), "--etcd-servers"),
        (EtcdSettings(("https://a:2379", "http://b:2379")), "either all are https"),
        (EtcdSettings(("https://a:2379",), prefix="registry"), "--etcd-prefix"),
        (EtcdSettings(("https://a:2379",), prefix="/registry/"), "--etcd-prefix"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: EtcdSettings, place: str) -> None:
    with pytest.raises(UnusableConfiguration, match=place):
        settings.check()


def test_what_is_written_is_within_the_grammar_of_kine() -> None:
    for txn in (
        messages.create_request(b"/a", b"1"),
        messages.update_request(b"/a", b"1", 7),
        messages.delete_request(b"/a", 7),
        messages.compaction_mark_request(7, 0),
    ):
        assert refusal_of_txn(txn) == ""
    assert refusal_of_range(messages.range_request(b"/a", b"/b", limit=5, revision=7)) == ""
    assert refusal_of_range(messages.range_request(b"/a", keys_only=True)) != ""
    assert refusal_of_watch(messages.watch_request(b"/a", b"/b", 7)) == ""
    assert refusal_of_watch(messages.progress_request()) == ""


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a", b"\x12\xff", b"\x08" + b"\xff" * 11])
def test_an_answer_that_is_cut_short_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedObject):
        messages.read_range(data)


_CLUSTER, _MEMBER, _TERM = ((number, 2**63 + number) for number in (1, 2, 4))
_REVISION = (3, 123_456_789)


@pytest.mark.parametrize(
    "header",
    [
        (_CLUSTER, _MEMBER, _REVISION, _TERM),
        (_REVISION,),  # as kine has it
        (_MEMBER, _REVISION),
        (_REVISION, _CLUSTER),
        (_TERM, _MEMBER, _CLUSTER, _REVISION),
    ],
)
def test_the_revision_is_found_wherever_it_stands(header: tuple[tuple[int, int], ...]) -> None:
    fields = b"".join(write_varint_field(*each) for each in header)
    assert messages.read_txn(write_bytes_field(1, fields)).revision == 123_456_789


def test_an_answer_without_a_revision_has_none() -> None:
    for header in ((), (_CLUSTER,), (_CLUSTER, _MEMBER, _TERM)):
        fields = b"".join(write_varint_field(*each) for each in header)
        assert messages.read_txn(write_bytes_field(1, fields)).revision == 0


@pytest.mark.parametrize(
    "header", [b"\x18", b"\x08\x01\x18\xff", b"\x08" + b"\xff" * 11 + b"\x01\x18\x07"]
)
def test_a_header_that_is_cut_short_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedObject):
        messages.read_txn(write_bytes_field(1, header))


def _delete_answer(deleted: bytes) -> bytes:
    """Succeeded at revision 7, one response: a delete of so many."""
    done = b"\x0a\x02\x18\x07" + deleted
    response = b"\x1a" + bytes([len(done)]) + done
    return b"\x0a\x02\x18\x07\x10\x01\x1a" + bytes([len(response)]) + response


def test_a_delete_that_deleted_nothing_has_not_succeeded() -> None:
    """kine answers so for a key that it has never heard of, whatever it was compared with."""
    assert messages.read_txn(_delete_answer(b"\x10\x01")).succeeded
    assert not messages.read_txn(_delete_answer(b"")).succeeded
    assert not messages.read_txn(_delete_answer(b"\x10\x00")).succeeded
