"""The roles of an agent at a kube-apiserver say what its scope says on our own hub, and no more."""

from clusterspace.apiserver.access.agents import AgentScope
from clusterspace.apiserver.access.rbac import missing_atoms, read_rules
from clusterspace.apiserver.identity.bootstrap_tokens import read_token
from clusterspace.apiserver.kubernetes_hub.agents import agent_objects, token_note, token_secret
from clusterspace.kube.objects import name_of, namespace_of

OBJECTS = agent_objects("west")


def test_roles_are_for_one_agent_and_in_its_places() -> None:
    bindings = [each for each in OBJECTS if each["kind"].endswith("RoleBinding")]

    assert {subject["name"] for each in bindings for subject in each["subjects"]} == {
        "system:karmada:agent:west"
    }
    assert {namespace_of(each) for each in bindings} == {
        "",
        "karmada-es-west",
        "karmada-cluster",
        "default",
        "kube-public",
    }
    assert {name_of(each) for each in bindings} == {"clusterspace-agent-west"}


def test_no_role_is_wider_than_the_scope_but_for_names_that_roles_cannot_list() -> None:
    scope = AgentScope("west")
    for role in (each for each in OBJECTS if each["kind"] in ("Role", "ClusterRole")):
        missing = missing_atoms(read_rules(role["rules"]), scope.rules(namespace_of(role)))
        beyond = {(atom.resources, atom.verbs) for atom in missing}
        assert beyond <= {
            (("certificatesigningrequests",), ("get",)),
            (("events",), ("get",)),
            (("events",), ("update",)),
            (("events",), ("patch",)),
        }


def test_secrets_are_reached_by_name_alone() -> None:
    for role in (each for each in OBJECTS if each["kind"] in ("Role", "ClusterRole")):
        for rule in read_rules(role["rules"]):
            if "secrets" in rule.resources and set(rule.verbs) != {"create"}:
                assert rule.names == ("west", "west-impersonator")
                assert not {"list", "watch"} & set(rule.verbs)


def test_a_token_is_one_that_kubernetes_reads_and_its_note_holds_no_secret() -> None:
    secret = token_secret("abc123.0123456789abcdef", "west", 0.0, seconds=60)

    assert read_token(secret, 1.0).cluster == "west"
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert "0123456789abcdef" not in str(token_note("abc123", "west"))
