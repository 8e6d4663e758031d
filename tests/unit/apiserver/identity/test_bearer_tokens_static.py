"""Token files: read strictly, and never kept in the clear."""

import pytest

from clusterspace.apiserver.identity.bearer_tokens import StaticTokens, UnreadableTokenFile

FILE = 'admin-token,admin,1,"system:masters,dev"\nplain-token,bob,2\n\n'


def test_a_line_gives_a_token_its_user_with_groups() -> None:
    admin = StaticTokens.parse(FILE).find("admin-token")

    assert admin is not None
    assert (admin.name, admin.uid) == ("admin", "1")
    assert admin.groups == ("system:masters", "dev", "system:authenticated")


def test_groups_and_empty_lines_may_be_left_out() -> None:
    bob = StaticTokens.parse(FILE).find("plain-token")

    assert bob is not None
    assert bob.groups == ("system:authenticated",)


@pytest.mark.parametrize(
    "text",
    ["token\n", "token,user\n", ",user,uid\n", "token,,uid\n", "a,b,1\nbroken\n"],
    ids=repr,
)
def test_a_malformed_line_is_named(text: str) -> None:
    number = text.count("\n")

    with pytest.raises(UnreadableTokenFile, match=f"line {number} "):
        StaticTokens.parse(text)


@pytest.mark.parametrize("token", ["", "admin", "admin-token ", "ADMIN-TOKEN", "admin-token,admin"])
def test_a_token_that_is_not_in_the_file_is_nobodys(token: str) -> None:
    assert StaticTokens.parse(FILE).find(token) is None


def test_tokens_are_not_kept_in_the_clear() -> None:
    table = StaticTokens.parse(FILE)

    assert "admin-token" not in repr(vars(table))
