"""Who is the agent of which cluster."""

import pytest

from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.identity.agents import agent_user, cluster_of_agent


def test_an_agent_is_known_by_name_and_group():
    assert cluster_of_agent(agent_user("west"), (AGENTS, "system:authenticated")) == "west"


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        (agent_user("west"), ()),
        (agent_user("west"), ("system:masters",)),
        ("west", (AGENTS,)),
        (agent_user(""), (AGENTS,)),
        (agent_user("a/b"), (AGENTS,)),
        (agent_user("rbac-generator"), (AGENTS,)),
    ],
)
def test_others_are_nobodys_agent(user: str, groups: tuple[str, ...]):
    assert cluster_of_agent(user, groups) == ""
