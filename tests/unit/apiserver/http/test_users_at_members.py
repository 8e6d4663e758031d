"""Who a user of the hub is at a member."""

import pytest

from clusterspace.apiserver.http.users import (
    ANONYMOUS,
    MemberIdentities,
    User,
    act_at_hub,
    read_members,
)
from clusterspace.errors import Forbidden

JANE = User("jane", ("dev", "system:authenticated"), "u1", {"scopes/x": ("read", "write")})
ROBOT = User(
    "system:serviceaccount:shop:robot",
    ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"),
)
ROOT = User("root", ("system:masters", "system:authenticated", "ops"))

USUAL = MemberIdentities()


def there(user: User, identities: MemberIdentities = USUAL) -> tuple[str, list[str]]:
    (_, name), *groups = identities.headers(user, "west")
    return name, [value for _, value in groups]


def test_a_member_hears_user_and_groups():
    assert USUAL.headers(JANE, "west") == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
    )


def test_the_hub_hears_everything_in_headers_that_are_headers():
    assert act_at_hub(JANE) == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-scopes%2Fx", "read"),
        ("Impersonate-Extra-scopes%2Fx", "write"),
    )


def test_an_account_of_the_hub_is_nobody_a_member_could_have_made():
    name, groups = there(ROBOT)

    assert name == "clusterspace:serviceaccount:shop:robot"
    assert groups == ["clusterspace:serviceaccounts", "clusterspace:serviceaccounts:shop"]


def test_an_account_keeps_its_plain_name_where_the_operator_says_so_and_nowhere_else():
    identities = MemberIdentities(plain_accounts=read_members(["east, west"]))

    assert there(ROBOT, identities) == (
        "system:serviceaccount:shop:robot",
        ["system:serviceaccounts", "system:serviceaccounts:shop"],
    )
    assert identities.headers(ROBOT, "north")[0][1] == "clusterspace:serviceaccount:shop:robot"


def test_masters_are_masters_elsewhere_only_where_the_operator_says_so():
    assert there(ROOT) == ("root", ["ops"])
    assert there(ROOT, MemberIdentities(passes_masters=True)) == ("root", ["system:masters", "ops"])


def test_the_administrator_of_karmada_travels_as_a_master_or_not_at_all():
    administrator = User("system:admin", ("system:masters",))

    assert there(administrator, MemberIdentities(passes_masters=True))[0] == "system:admin"
    with pytest.raises(Forbidden, match="not passed on to member clusters"):
        USUAL.headers(administrator, "west")


@pytest.mark.parametrize(
    "user",
    [
        ANONYMOUS,
        User("jane", ("system:unauthenticated",)),
        User("system:node:worker-1", ("system:nodes",)),
        User("system:kube-controller-manager"),
        User("system:karmada:agent:west"),
        User("system:serviceaccount:shop"),
        User("system:serviceaccount:shop:"),
        User("system:serviceaccount:shop:robot:x"),
        User("clusterspace:serviceaccount:shop:robot"),
        User("clusterspace:anything"),
    ],
    ids=lambda user: user.name,
)
@pytest.mark.parametrize("passes_masters", [True, False])
def test_names_that_mean_somebody_else_there_do_not_travel(user: User, passes_masters: bool):
    identities = MemberIdentities(passes_masters, frozenset({"west"}))

    with pytest.raises(Forbidden, match="is not passed on to member clusters: "):
        identities.headers(user, "west")


def test_groups_of_the_system_and_of_ours_stay_here():
    user = User(
        "jane",
        (
            "system:nodes",
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "clusterspace:serviceaccounts",
            "clusterspace:serviceaccounts:shop",
            "dev",
        ),
    )

    assert there(user) == ("jane", ["dev"])
    assert there(user, MemberIdentities(True, frozenset({"west"}))) == ("jane", ["dev"])


@pytest.mark.parametrize(
    "user",
    [
        User(""),
        User(" root"),
        User("root\t"),
        User("jane", (" system:masters",)),
        User("jane", ("dev\r\nImpersonate-Group: system:masters",)),
        User("jane", (), " u1"),
    ],
)
def test_a_user_who_would_arrive_as_somebody_else_is_not_passed_on(user: User):
    with pytest.raises(Forbidden):
        USUAL.headers(user, "west")
    with pytest.raises(Forbidden):
        act_at_hub(user)
