import pytest

from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.access.agents import AgentScope, scope_of
from clusterspace.apiserver.access.authorizer import name_asked_for
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import Impersonation, User

WEST = AgentScope("west")


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        (User("system:karmada:agent:west", (AGENTS,)), "west"),
        (User("system:karmada:agent:west"), "west"),
        (User("jane", (AGENTS,)), ""),
        (User("system:karmada:agent:", (AGENTS,)), ""),
    ],
)
def test_either_sign_makes_an_agent(user: User, cluster: str) -> None:
    assert scope_of(user) == AgentScope(cluster)


def test_everybody_else_is_none() -> None:
    assert scope_of(User("system:karmada:agents", ("devs",))) is None


def test_an_agent_acts_as_nobody_else() -> None:
    for wanted in Impersonation("system:karmada:agent:west", ("devs",), "7").checks():
        assert not WEST.allows(wanted, wanted.name)


@pytest.mark.parametrize(
    ("asked", "is_allowed"),
    [
        ("GET /apis/work.karmada.io/v1alpha1/namespaces/karmada-es-west/works", True),
        ("GET /apis/work.karmada.io/v1alpha1/namespaces/karmada-es-west2/works", False),
        ("GET /apis/work.karmada.io/v1alpha1/works", False),
        ("DELETE /apis/work.karmada.io/v1alpha1/namespaces/karmada-es-west/works", False),
        ("GET /apis/cluster.kubernetes-fleet.io/v1beta1/memberclusters/west", False),
        *(
            (f"{verb} /apis/cluster.kubernetes-fleet.io/v1beta1/namespaces/{rest}", is_allowed)
            for verb, rest, is_allowed in (
                ("GET", "fleet-member-west/internalmemberclusters", True),
                ("GET", "fleet-member-west/internalmemberclusters/west", True),
                ("PUT", "fleet-member-west/internalmemberclusters/west/status", True),
                ("PUT", "fleet-member-west/internalmemberclusters/west", False),
                ("DELETE", "fleet-member-west/internalmemberclusters/west", False),
                ("GET", "fleet-member-east/internalmemberclusters/west", False),
            )
        ),
        ("GET /apis/cluster.karmada.io/v1alpha1/clusters/west", True),
        ("GET /apis/cluster.karmada.io/v1alpha1/clusters", False),
        ("GET /apis/cluster.karmada.io/v1alpha1/clusters?fieldSelector=metadata.name=west", True),
        ("GET /apis/cluster.karmada.io/v1alpha1/clusters?fieldSelector=metadata.name!=x", False),
        ("PUT /apis/cluster.karmada.io/v1alpha1/clusters/west", False),
        ("DELETE /apis/cluster.karmada.io/v1alpha1/clusters/west", False),
        ("PUT /apis/cluster.karmada.io/v1alpha1/clusters/west/status", True),
        ("GET /apis/cluster.karmada.io/v1alpha1/clusters/west/proxy", False),
        ("GET /api/v1/namespaces/karmada-cluster/secrets/west", True),
        ("GET /api/v1/namespaces/karmada-cluster/secrets/east", False),
        ("GET /api/v1/namespaces/karmada-cluster/secrets", False),
        ("GET /api/v1/namespaces/karmada-es-west/secrets/west", False),
        ("GET /apis/certificates.k8s.io/v1/certificatesigningrequests/west-1a2b3", True),
        ("GET /apis/certificates.k8s.io/v1/certificatesigningrequests/west-2-1a2b3", False),
        ("GET /apis/certificates.k8s.io/v1/certificatesigningrequests/east-1a2b3", False),
        ("PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/west-1a2b3/approval", False),
        ("POST /api/v1/namespaces/default/events", True),
        ("POST /apis/events.k8s.io/v1/namespaces/default/events", True),
        ("POST /api/v1/namespaces/kube-system/events", False),
        ("POST /api/v1/namespaces/default/pods", False),
        ("PATCH /api/v1/namespaces/default/events/west.17ab", True),
        ("PATCH /api/v1/namespaces/default/events/west2.17ab", False),
        ("PATCH /api/v1/namespaces/default/events/west", False),
        ("DELETE /api/v1/namespaces/default/events/west.17ab", False),
        (f"GET /api/v1/namespaces/default/events/west.clusterspace-agent.{'a' * 16}", True),
        (f"GET /api/v1/namespaces/default/events/east.clusterspace-agent.{'a' * 16}", False),
        (f"GET /api/v1/namespaces/default/events/west.{'a' * 16}", False),
        ("GET /api/v1/namespaces/default/events", False),
        ("GET /api/v1/namespaces/karmada-es-west/events/anything", True),
        ("GET /metrics", False),
        ("GET /apis", True),
    ],
)
def test_an_agent_reaches_its_own_and_nothing_else(asked: str, is_allowed: bool) -> None:
    method, _, target = asked.partition(" ")
    path, _, query = target.partition("?")
    info = read_request(method, path, query)

    assert WEST.allows(info, name_asked_for(info)) is is_allowed
    assert not AgentScope("").allows(info, name_asked_for(info))
