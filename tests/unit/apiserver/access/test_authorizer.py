import pytest

from clusterspace.apiserver.access.authorizer import HubAuthorizer, name_asked_for
from clusterspace.apiserver.access.grants import Binding, NamespacedName, RoleCache, Subject
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.store.memory import MemoryStore

MAPS = "/api/v1/namespaces/shop/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "query", "name"),
    [
        ("GET", f"{MAPS}/web", "", "web"),
        ("GET", f"{MAPS}/web", "fieldSelector=metadata.name=db", "web"),
        ("GET", MAPS, "fieldSelector=metadata.name=web", "web"),
        ("GET", MAPS, "fieldSelector=metadata.name=web&watch=1", "web"),
        ("GET", MAPS, "fieldSelector=metadata.name%3D%3Dweb,metadata.namespace=shop", "web"),
        ("GET", MAPS, "fieldSelector=metadata.name!=web", ""),
        ("GET", MAPS, "fieldSelector=metadata.name=..", ""),
        ("GET", MAPS, "fieldSelector=metadata.name=a/b", ""),
        ("GET", MAPS, "fieldSelector=,,", ""),
        ("GET", MAPS, "labelSelector=metadata.name=web", ""),
        ("GET", MAPS, "fieldSelector=&fieldSelector=metadata.name=web", ""),
        ("DELETE", MAPS, "fieldSelector=metadata.name=web", ""),
        ("POST", MAPS, "fieldSelector=metadata.name=web", ""),
        ("GET", "/api/v1/watch/namespaces/shop/configmaps/web", "", ""),
        ("GET", "/metrics", "fieldSelector=metadata.name=web", ""),
    ],
)
def test_a_request_is_about_the_one_name_its_handler_would_show(
    method: str, path: str, query: str, name: str
) -> None:
    assert name_asked_for(read_request(method, path, query)) == name


async def test_an_agent_stays_one_whatever_groups_and_roles_it_is_given() -> None:
    role_cache = RoleCache(MemoryStore())
    role_cache.grants.put_role(NamespacedName("", "all"), (Rule(("*",), ("*",), ("*",)),))
    everybody = (Subject("Group", "devs"),)
    role_cache.grants.put_binding(
        Binding(NamespacedName("", "b"), NamespacedName("", "all"), everybody)
    )
    authorizer = HubAuthorizer(role_cache)
    info = read_request("GET", "/api/v1/secrets", "")

    for groups in ((), ("devs",), (MASTERS,)):
        agent = User("system:karmada:agent:west", groups)
        assert not (await authorizer.decide(agent, info)).allowed
    assert (await authorizer.decide(User("jane", ("devs",)), info)).allowed


async def test_what_nothing_allows_is_refused() -> None:
    authorizer = HubAuthorizer(RoleCache(MemoryStore()))

    for path in ("/api/v1/pods", "/healthz", "/api", "/x"):
        info = read_request("GET", path, "")
        assert not (await authorizer.decide(User("jane"), info)).allowed
        assert (await authorizer.decide(User("root", (MASTERS,)), info)).allowed
