"""The form of the hub's answers, as kube-apiserver's clients meet it, and what is there unasked."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.component.hub_wire import CONFIG_MAPS, TABLE, HubClient, config_map, hub_here

from clusterspace.kube.objects import Object
from clusterspace.testing.steps import until

BETA_TABLE = TABLE.replace("v=v1", "v=v1beta1")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubClient]:
    async with hub_here(tmp_path_factory.mktemp("hub")) as client:
        await client.do("POST", CONFIG_MAPS, config_map("settings", data={"a": "b"}))
        yield client


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "path",
    [
        f"{CONFIG_MAPS}/settings",
        CONFIG_MAPS,
        f"{CONFIG_MAPS}/nobody",
        "/api",
        "/apis/apps/v1",
    ],
)
async def test_an_answer_in_json_is_a_line_and_indented_for_people(
    hub: HubClient, path: str
) -> None:
    for_programs = (await hub.ask("GET", path)).body
    for_people = (await hub.ask("GET", path, agent="curl/8.5.0")).body
    refused = (await hub.ask("GET", f"{path}?pretty=false", agent="curl/8.5.0")).body
    asked_for = (await hub.ask("GET", f"{path}?pretty=true")).body

    assert for_programs.endswith(b"}\n")
    assert for_programs.count(b"\n") == 1
    assert for_people.startswith(b'{\n  "')
    assert for_people.endswith(b"\n}")
    assert msgspec.json.decode(for_people) == msgspec.json.decode(for_programs)
    assert (refused, asked_for) == (for_programs, for_people)


async def test_documents_that_are_no_objects_are_always_indented(hub: HubClient) -> None:
    for path in ("/version", "/"):
        body = (await hub.ask("GET", path)).body
        assert body.startswith(b'{\n  "')
        assert body.endswith(b"\n}")


async def test_the_table_of_before_is_still_served(hub: HubClient) -> None:
    listed = await hub.do("GET", CONFIG_MAPS, accept=BETA_TABLE)
    one = await hub.do("GET", f"{CONFIG_MAPS}/settings", accept=BETA_TABLE)

    for table in (listed, one):
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1beta1")
        assert table["columnDefinitions"][0]["name"] == "Name"
        assert {row["object"]["apiVersion"] for row in table["rows"]} == {"meta.k8s.io/v1beta1"}
    assert (await hub.do("GET", CONFIG_MAPS, accept=TABLE))["apiVersion"] == "meta.k8s.io/v1"


async def test_what_has_no_columns_refuses_to_be_a_table(hub: HubClient) -> None:
    review: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    }

    assert await hub.refused("POST", REVIEWS, review, accept=BETA_TABLE) == 406
    answered = await hub.do("POST", REVIEWS, review, accept=f"{BETA_TABLE},application/json")
    assert answered["kind"] == "SelfSubjectAccessReview"


async def test_a_pod_that_is_changed_keeps_the_tolerations_every_pod_has(hub: HubClient) -> None:
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "main", "image": "i"}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [container]},
    }
    made = await hub.do("POST", pods, pod)
    without = {key: value for key, value in made["spec"].items() if key != "tolerations"}

    after = await hub.do("PUT", f"{pods}/web", {**made, "spec": without})

    assert after["spec"]["tolerations"] == made["spec"]["tolerations"]


# -- what is there before anybody asks -------------------------------------------------------------


async def found(hub: HubClient, path: str) -> Object:
    async def look() -> Object | None:
        answer = await hub.ask("GET", path)
        return msgspec.json.decode(answer.body) if answer.status == 200 else None

    return await until(look)


async def test_programs_in_the_cluster_find_the_api_server_by_its_service(hub: HubClient) -> None:
    default = "/api/v1/namespaces/default"
    service = await found(hub, f"{default}/services/kubernetes")
    cidr = await found(hub, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")

    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert [(each["port"], each["targetPort"]) for each in service["spec"]["ports"]] == [
        (443, hub.port)
    ]
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert cidr["spec"]["cidrs"] == ["10.96.0.0/16"]

    async def is_ready() -> bool:
        now = await found(hub, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
        said = now.get("status", {}).get("conditions", [])
        return [(each["type"], each["status"]) for each in said] == [("Ready", "True")]

    await until(is_ready)


async def test_a_service_that_somebody_deletes_is_put_back(hub: HubClient) -> None:
    path = "/api/v1/namespaces/default/services/kubernetes"
    before = await found(hub, path)

    await hub.do("DELETE", path)

    after = await found(hub, path)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]


async def test_the_day_since_which_tokens_are_tracked_is_written_down(hub: HubClient) -> None:
    name = "kube-apiserver-legacy-service-account-token-tracking"
    tracking = await found(hub, f"/api/v1/namespaces/kube-system/configmaps/{name}")

    assert len(tracking["data"]["since"]) == len("2006-01-02")


# -- health --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["healthz", "livez", "readyz"])
async def test_health_checks_have_the_names_that_probes_know(hub: HubClient, kind: str) -> None:
    lines = (await hub.ask("GET", f"/{kind}?verbose")).body.decode().splitlines()

    assert {"[+]ping ok", "[+]log ok", "[+]etcd ok"} <= set(lines)
    assert "[+]poststarthook/crd-informer-synced ok" in lines
    assert ("[+]informer-sync ok" in lines) is (kind == "readyz")
    assert lines[-1] == f"{kind} check passed"


async def test_one_check_can_be_asked_for_alone_and_left_out(hub: HubClient) -> None:
    assert (await hub.ask("GET", "/livez/etcd")).body == b"ok"
    assert (await hub.ask("GET", "/readyz/nonsense")).status == 404
    without = (await hub.ask("GET", "/healthz?verbose&exclude=etcd")).body
    assert b"]etcd ok" not in without


async def test_results_of_health_checks_are_measured(hub: HubClient) -> None:
    await hub.ask("GET", "/readyz")

    shown = (await hub.ask("GET", "/metrics/slis")).body.decode()

    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1.0' in shown
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"}' in shown


async def test_components_are_healthy_while_somebody_holds_their_lease(hub: HubClient) -> None:
    path, leases = "/api/v1/componentstatuses", "/apis/coordination.k8s.io/v1/namespaces"

    async def healthy() -> dict[str, str]:
        listed = await hub.do("GET", path)
        return {
            each["metadata"]["name"]: each["conditions"][0]["status"] for each in listed["items"]
        }

    assert await healthy() == {
        "controller-manager": "False",
        "etcd-0": "True",
        "scheduler": "False",
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler"},
        "spec": {
            "holderIdentity": "somebody",
            "leaseDurationSeconds": 15,
            "renewTime": "2999-01-01T00:00:00.000000Z",
        },
    }
    await hub.do("POST", f"{leases}/kube-system/leases", lease)

    assert (await healthy())["scheduler"] == "True"
    assert (await hub.do("GET", f"{path}/etcd-0"))["conditions"][0]["message"] == "ok"
    table = await hub.do("GET", path, accept=TABLE)
    assert [row["cells"][:2] for row in table["rows"]][1] == ["etcd-0", "Healthy"]


# -- flow control ----------------------------------------------------------------------------------


async def test_a_flow_schema_says_whether_its_priority_level_exists(hub: HubClient) -> None:
    group = "/apis/flowcontrol.apiserver.k8s.io/v1"
    rule = {
        "subjects": [{"kind": "User", "user": {"name": "noxu"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    schema: Object = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "testing"},
        "spec": {
            "matchingPrecedence": 1000,
            "priorityLevelConfiguration": {"name": "testing"},
            "rules": [rule],
        },
    }
    level: Object = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "testing"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    }
    await hub.do("POST", f"{group}/flowschemas", schema)

    async def dangling() -> str:
        found = await hub.do("GET", f"{group}/flowschemas/testing")
        said = found.get("status", {}).get("conditions", [])
        return next((each["status"] for each in said if each["type"] == "Dangling"), "")

    async def dangles() -> bool:
        return await dangling() == "True"

    async def leads_somewhere() -> bool:
        return await dangling() == "False"

    await until(dangles)
    await hub.do("POST", f"{group}/prioritylevelconfigurations", level)
    await until(leads_somewhere)
    await hub.do("DELETE", f"{group}/prioritylevelconfigurations/testing")
    await until(dangles)


# -- services that change their type ---------------------------------------------------------------


async def test_a_service_that_becomes_a_name_loses_its_address_and_gets_one_again(
    hub: HubClient,
) -> None:
    path = "/api/v1/namespaces/default/services"
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "moving"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]},
    }
    made = await hub.do("POST", path, service)
    spec = {**made["spec"], "type": "ExternalName", "externalName": "elsewhere.example"}
    spec.pop("clusterIP")

    named = await hub.do("PUT", f"{path}/moving", {**made, "spec": spec})

    gone = {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "externalTrafficPolicy"}
    assert gone.isdisjoint(named["spec"])
    assert "nodePort" not in named["spec"]["ports"][0]
    back = {**named["spec"], "type": "ClusterIP"}
    back.pop("externalName")
    again = await hub.do("PUT", f"{path}/moving", {**named, "spec": back})
    assert again["spec"]["clusterIPs"] == [again["spec"]["clusterIP"]]
    assert again["spec"]["ipFamilyPolicy"] == "SingleStack"


async def test_a_service_that_is_exposed_no_more_gives_back_its_node_port(hub: HubClient) -> None:
    path = "/api/v1/namespaces/default/services"
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "shy"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    }
    made = await hub.do("POST", path, service)

    shy = {**made, "spec": {**made["spec"], "type": "ClusterIP"}}
    after = await hub.do("PUT", f"{path}/shy", shy)

    assert "nodePort" not in after["spec"]["ports"][0]
    assert {"allocateLoadBalancerNodePorts", "externalTrafficPolicy"}.isdisjoint(after["spec"])
    assert after["spec"]["clusterIP"] == made["spec"]["clusterIP"]
