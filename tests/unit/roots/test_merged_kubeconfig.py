"""One kubeconfig of several."""

import yaml

from clusterspace.roots.kubeconfigs import merged_kubeconfig


def kubeconfig(name: str, *, has_users: bool = True) -> bytes:
    return yaml.safe_dump(
        {
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}}],
            "users": [{"name": "admin", "user": {"token": f"{name}-token"}}] if has_users else [],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        }
    ).encode()


def test_the_first_part_is_the_current_context():
    merged = yaml.safe_load(merged_kubeconfig([kubeconfig("fleet"), kubeconfig("hub")]))

    assert merged["current-context"] == "fleet"
    assert [each["name"] for each in merged["contexts"]] == ["fleet", "hub"]


def test_users_of_the_same_name_are_not_mixed_up():
    merged = yaml.safe_load(merged_kubeconfig([kubeconfig("fleet"), kubeconfig("hub")]))

    tokens = {each["name"]: each["user"]["token"] for each in merged["users"]}
    users = {each["name"]: each["context"]["user"] for each in merged["contexts"]}
    assert {name: tokens[user] for name, user in users.items()} == {
        "fleet": "fleet-token",
        "hub": "hub-token",
    }


def test_a_part_that_knows_no_users_is_used_by_those_of_the_other():
    parts = [kubeconfig("fleet", has_users=False), kubeconfig("hub")]
    merged = yaml.safe_load(merged_kubeconfig(parts))

    users = {each["name"]: each["context"]["user"] for each in merged["contexts"]}
    assert users == {"fleet": "hub-admin", "hub": "hub-admin"}
    assert [each["name"] for each in merged["users"]] == ["hub-admin"]
