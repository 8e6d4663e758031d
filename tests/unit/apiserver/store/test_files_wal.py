import pytest

from clusterspace.apiserver.store.files import Frame, find_lost_commit, read_frames
from clusterspace.errors import StoreCorrupt


def frames(picture: str) -> list[Frame]:
    """One letter per frame; a capital commits."""
    return [Frame(number, letter.isupper()) for number, letter in enumerate(picture, start=1)]


@pytest.mark.parametrize(
    ("picture", "last_valid", "lost"),
    [
        ("aAbB", 4, None),  # everything was read
        ("aAbB", 2, None),  # the last commit was cut short, or never acknowledged
        ("aAb", 2, None),  # a commit that was never finished
        ("aAbBc", 2, 4),  # b was committed, because c was begun
        ("aAbBcC", 0, 2),  # damage in the first frame
        ("", 0, None),
    ],
)
def test_a_commit_followed_by_another_was_on_the_disk(
    picture: str, last_valid: int, lost: int | None
) -> None:
    assert find_lost_commit(frames(picture), last_valid=last_valid) == lost


def test_a_log_without_frames_or_never_written_is_empty() -> None:
    assert list(read_frames(b"")) == []
    assert list(read_frames(bytes(32))) == []
    assert list(read_frames(bytes(5000))) == []


def test_a_damaged_head_is_refused() -> None:
    with pytest.raises(StoreCorrupt, match="head of the write-ahead log"):
        list(read_frames(b"\x37\x7f\x06\x82" + bytes(5000)))
