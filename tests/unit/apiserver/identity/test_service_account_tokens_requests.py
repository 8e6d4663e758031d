"""TokenRequest: how long, and bound to what."""

import pytest
from tests.unit.apiserver.identity.subjects import MemoryHub

from clusterspace.apiserver.identity.service_account_tokens import (
    Reference,
    find_binding,
    request_causes,
)
from clusterspace.errors import BadRequest, Conflict, NotFound
from clusterspace.kube.objects import Object, uid_of


@pytest.mark.parametrize("seconds", [600, 3600, 1 << 32])
def test_ten_minutes_and_more_may_be_asked_for(seconds: int):
    assert request_causes({"spec": {"expirationSeconds": seconds}}) == ()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(599, "less than 10 minutes"), (0, "less than"), (-1, "less than"), (1 << 33, "2^32")],
)
def test_other_lives_are_refused(seconds: int, words: str):
    (cause,) = request_causes({"spec": {"expirationSeconds": seconds}})

    assert cause.field == "spec.expirationSeconds"
    assert words in cause.message


class Bindable:
    """A service account, and a pod that runs as it on a node."""

    async def start(self) -> "Bindable":
        self.hub = MemoryHub()
        await self.hub.create_namespace("apps")
        self.account = await self.hub.create_account("apps", "bot")
        self.node = await self.hub.create(
            "", "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        )
        self.pod = await self.create_pod("web", "bot")
        await self.create_pod("other", "default")
        return self

    async def create_pod(self, name: str, account: str) -> Object:
        spec = {
            "containers": [{"name": "web", "image": "web"}],
            "serviceAccountName": account,
            "nodeName": "n1",
        }
        metadata = {"name": name, "namespace": "apps"}
        wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return await self.hub.create("", "pods", wanted)

    async def bind(self, **reference: str) -> object:
        request: Object = {"spec": {"boundObjectRef": {"apiVersion": "v1", **reference}}}
        return await find_binding(self.hub.state, request, self.account)


async def test_a_token_can_be_bound_to_a_pod_and_then_names_its_node():
    there = await Bindable().start()

    assert await there.bind(kind="Pod", name="web") == {
        "pod": Reference("web", uid_of(there.pod)),
        "node": Reference("n1", uid_of(there.node)),
    }


async def test_a_token_can_be_bound_to_a_node():
    there = await Bindable().start()

    assert await there.bind(kind="Node", name="n1") == {"node": Reference("n1", uid_of(there.node))}


@pytest.mark.parametrize(
    ("reference", "refusal"),
    [
        ({"kind": "Pod", "name": "gone"}, NotFound),
        ({"kind": "Pod", "name": "other"}, BadRequest),
        ({"kind": "Pod", "name": "web", "uid": "another"}, Conflict),
        ({"kind": "ConfigMap", "name": "web"}, BadRequest),
        ({"name": "web"}, BadRequest),
    ],
    ids=["gone", "of another account", "another one of that name", "not bindable", "no kind"],
)
async def test_what_a_token_cannot_be_bound_to_is_refused(
    reference: dict[str, str], refusal: type[Exception]
):
    there = await Bindable().start()

    with pytest.raises(refusal):
        await there.bind(**reference)


async def test_a_token_need_not_be_bound():
    there = await Bindable().start()

    assert await find_binding(there.hub.state, {"spec": {}}, there.account) == {}
