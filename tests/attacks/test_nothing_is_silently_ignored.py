"""An operator limits a tenant on a server that stores the limit and does not obey it.

Every object that would steer an API server, written by every verb at every address, answers with a
Warning that says so: on the hub, through the fleet API server, and on a simulated member.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site, heard

from clusterspace.apiserver.admission.unenforced import FIELDS, KINDS
from clusterspace.builtins.resources import all_resources
from clusterspace.client.requests import ApiRequest
from clusterspace.fleet.gateway.fanout import exchange
from clusterspace.kube.resources import ResourceInfo

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADDRESSES = ("hub", "hub through the fleet", "member", "member through the fleet")
API: dict[str, Any] = {
    "group": "metrics.example.com",
    "version": "v1",
    "groupPriorityMinimum": 100,
    "versionPriority": 100,
    "service": {"name": "metrics", "namespace": "default"},
    "insecureSkipTLSVerify": True,
}
SERVICE: dict[str, Any] = {
    "group": "",
    "resource": "services",
    "namespace": "default",
    "name": "web",
}

WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "APIService": ("v1.metrics.example.com", {"spec": API}),
    "ServiceCIDR": ("limit", {"spec": {"cidrs": ["10.99.0.0/24"]}}),
    "IPAddress": ("10.99.0.7", {"spec": {"parentRef": SERVICE}}),
}
"""For each kind a name and what an operator writes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("ignored"), members=(), sims=("lab",)) as running:
        yield running


def resource_of(kind: str) -> ResourceInfo:
    return next(each.info for each in all_resources() if each.info.kind == kind)


class Operator:
    """Somebody who may do everything, at one address."""

    def __init__(self, site: Site, address: str) -> None:
        self.is_at_member = address.startswith("member")
        self._prefix = "/clusterspaces/lab" if address == "member through the fleet" else ""
        self._connection = site.connection("root-token")
        if address == "hub":
            self._connection = site.hub.client.connection
        if address == "member":
            self._connection = site.members["lab"].client.connection

    async def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, str]:
        """Return the status and the warnings."""
        raw = None if body is None else json.dumps(body).encode()
        headers = (("Content-Type", content_type),) if raw else ()
        ask = ApiRequest(method, self._prefix + path, headers=headers, body=raw)
        answer = heard(await exchange(self._connection, ask))
        assert answer.code in (200, 201), answer.body
        return answer.code, answer.warning


def manifest(kind: str, name: str, more: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, **more.get("metadata", {})}
    info = resource_of(kind)
    return {"apiVersion": info.api_version, "kind": kind, **more, "metadata": metadata}


def collection_of(info: ResourceInfo) -> str:
    place = "/namespaces/default" if info.namespaced else ""
    root = f"/apis/{info.api_version}" if info.group else f"/api/{info.version}"
    return f"{root}{place}/{info.plural}"


async def test_an_import_that_asks_for_an_address_is_told(site: Site) -> None:
    body = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceImport",
        "metadata": {"name": "much"},
        "spec": {"type": "ClusterSetIP", "ports": [{"port": 80}], "ips": ["10.0.0.1"]},
    }
    group = "/apis/multicluster.x-k8s.io/v1alpha1"
    path = f"{group}/namespaces/default/serviceimports?dryRun=All"

    _, warning = await Operator(site, "hub").ask("POST", path, body)
    plain = {**body, "spec": {"type": "ClusterSetIP", "ports": [{"port": 80}]}}
    _, silence = await Operator(site, "hub").ask("POST", path, plain)

    assert "spec.ips is stored but not acted on" in warning
    assert silence == ""


async def test_the_attacker_tries_every_kind_there_is_to_be_warned_of() -> None:
    assert {kind for _, kind in KINDS} == set(WRITTEN)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("kind", WRITTEN)
async def test_whoever_writes_what_is_not_enforced_is_told(
    site: Site, kind: str, address: str
) -> None:
    operator = Operator(site, address)
    name, more = WRITTEN[kind]
    if kind == "Namespace":  # it takes a while to go, and two addresses lead to each server
        name = f"limit-{ADDRESSES.index(address)}"
    body, path = manifest(kind, name, more), collection_of(resource_of(kind))
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"

    said = {
        "dry run": await operator.ask("POST", f"{path}?dryRun=All", body),
        "create": await operator.ask("POST", path, body),
        "patch": await operator.ask(
            "PATCH", f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}}, merge
        ),
        "apply": await operator.ask(
            "PATCH", f"{path}/{name}?fieldManager=me&force=true", body, apply
        ),
        "apply again": await operator.ask(
            "PATCH", f"{path}/{name}?fieldManager=me&force=true", body, apply
        ),
    }
    _, after_delete = await operator.ask("DELETE", f"{path}/{name}")

    where = "this simulated member" if operator.is_at_member else "this control plane"
    speaker = "cluster lab: " if address == "member through the fleet" else ""
    for how, (_, warning) in said.items():
        assert warning.startswith(f'299 - "{speaker}{kind}'), how
        assert f"not enforced by {where}" in warning, how
    assert after_delete == ""


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_put_is_told_as_well(site: Site, address: str) -> None:
    operator = Operator(site, address)
    service = manifest("IPAddress", "10.96.1.1", WRITTEN["IPAddress"][1])
    path = collection_of(resource_of("IPAddress"))
    await operator.ask("POST", path, service)

    _, warning = await operator.ask("PUT", f"{path}/10.96.1.1", service)
    await operator.ask("DELETE", f"{path}/10.96.1.1")

    assert "IPAddress is stored but not enforced" in warning


@pytest.mark.parametrize("address", ["hub", "hub through the fleet"])
async def test_a_kind_that_only_another_projects_controllers_act_on_is_told(
    site: Site, address: str
) -> None:
    group = "networking.karmada.io/v1alpha1"
    path = f"/apis/{group}/namespaces/default/multiclusteringresses?dryRun=All"
    body = {
        "apiVersion": group,
        "kind": "MultiClusterIngress",
        "metadata": {"name": "calm"},
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
    }

    _, warning = await Operator(site, address).ask("POST", path, body)

    why = "no controller of this control plane acts on it: those of multi-cluster-ingress-nginx do"
    assert why in warning


POLICY_ASKS: dict[str, dict[str, Any]] = {
    "spec.placement.clusterTolerations.tolerationSeconds": {
        "placement": {
            "clusterTolerations": [
                {"key": "gone", "operator": "Exists", "effect": "NoExecute"},
                {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
            ]
        }
    },
    "spec.association": {"association": True},
}


@pytest.mark.parametrize("kind", ["PropagationPolicy", "ClusterPropagationPolicy"])
@pytest.mark.parametrize("field", POLICY_ASKS)
async def test_a_policy_that_asks_for_what_nothing_does_is_told(
    site: Site, kind: str, field: str
) -> None:
    scope, plural = "", "clusterpropagationpolicies"
    if kind == "PropagationPolicy":
        scope, plural = "/namespaces/default", "propagationpolicies"
    path = f"/apis/policy.karmada.io/v1alpha1{scope}/{plural}?dryRun=All"
    selected = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
    spec = {"resourceSelectors": [selected], **POLICY_ASKS[field]}
    body = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "much"},
        "spec": spec,
    }
    plain = {**body, "spec": {"resourceSelectors": [selected], "preemption": "Never"}}

    _, warning = await Operator(site, "hub").ask("POST", path, body)
    _, silence = await Operator(site, "hub").ask("POST", path, plain)

    assert warning.startswith(f'299 - "{field} is stored but not acted on by this control plane')
    assert silence == ""


async def test_a_registry_that_asks_for_opensearch_is_told(site: Site) -> None:
    store = {"addresses": ["https://127.0.0.1:1"], "secretRef": {"namespace": "a", "name": "b"}}
    chosen = {"targetCluster": {}, "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}]}
    body = {
        "apiVersion": "search.karmada.io/v1alpha1",
        "kind": "ResourceRegistry",
        "metadata": {"name": "much"},
        "spec": {**chosen, "backendStore": {"openSearch": store}},
    }
    path = "/apis/search.karmada.io/v1alpha1/resourceregistries?dryRun=All"

    _, warning = await Operator(site, "hub").ask("POST", path, body)
    _, silence = await Operator(site, "hub").ask("POST", path, {**body, "spec": chosen})

    assert "spec.backendStore.openSearch is stored but not acted on" in warning
    assert silence == ""


PLACEMENT_ASKS: dict[str, dict[str, Any]] = {
    "spec.strategy.reportBackStrategy": {
        "strategy": {"reportBackStrategy": {"type": "Mirror", "destination": "WorkAPI"}}
    },
}


@pytest.mark.parametrize("field", PLACEMENT_ASKS)
async def test_a_placement_that_asks_for_what_nothing_does_is_told(site: Site, field: str) -> None:
    chosen = [{"group": "", "version": "v1", "kind": "ConfigMap"}]
    body = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ResourcePlacement",
        "metadata": {"name": "much"},
        "spec": {"resourceSelectors": chosen, **PLACEMENT_ASKS[field]},
    }
    group = "/apis/placement.kubernetes-fleet.io/v1beta1"
    path = f"{group}/namespaces/default/resourceplacements?dryRun=All"
    plain = {**body, "spec": {"resourceSelectors": chosen}}

    _, warning = await Operator(site, "hub").ask("POST", path, body)
    _, silence = await Operator(site, "hub").ask("POST", path, plain)

    assert f"{field} is stored but not acted on" in warning
    assert silence == ""


async def test_an_override_of_a_namespace_alone_is_told(site: Site) -> None:
    patch = {"op": "add", "path": "/metadata/labels", "value": {"v": "1"}}
    rule = {"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": [patch]}
    named = {"group": "", "version": "v1", "kind": "Namespace", "name": "web"}
    body = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourceOverride",
        "metadata": {"name": "much"},
        "spec": {
            "clusterResourceSelectors": [{**named, "selectionScope": "NamespaceOnly"}],
            "policy": {"overrideRules": [rule]},
        },
    }
    path = "/apis/placement.kubernetes-fleet.io/v1beta1/clusterresourceoverrides?dryRun=All"

    _, warning = await Operator(site, "hub").ask("POST", path, body)

    assert "selectionScope: NamespaceOnly is stored but not acted on" in warning


async def test_a_member_that_asks_not_to_be_validated_is_told(site: Site) -> None:
    identity = {"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}
    body = {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {"name": "much"},
        "spec": {"identity": identity, "deleteOptions": {"validationMode": "Skip"}},
    }
    path = "/apis/cluster.kubernetes-fleet.io/v1beta1/memberclusters?dryRun=All"

    _, warning = await Operator(site, "hub").ask("POST", path, body)
    plain = {**body, "spec": {"identity": identity}}
    _, silence = await Operator(site, "hub").ask("POST", path, plain)

    assert "spec.deleteOptions is stored but not acted on" in warning
    assert silence == ""


async def test_the_attacker_tries_every_field_there_is_to_be_warned_of() -> None:
    tried = {
        *POLICY_ASKS,
        *PLACEMENT_ASKS,
        "spec.backendStore.openSearch",
        "spec.deleteOptions",
        "spec.ips",
        "spec.clusterResourceSelectors.selectionScope: NamespaceOnly",
    }

    assert {each.field for fields in FIELDS.values() for each in fields} == tried


@pytest.mark.parametrize("address", ADDRESSES)
async def test_what_acts_here_or_on_members_is_written_without_a_word(
    site: Site, address: str
) -> None:
    operator = Operator(site, address)
    selector = {"matchLabels": {"app": "web"}}
    container = {"name": "web", "image": "web"}
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    bodies: dict[str, dict[str, Any]] = {
        "ConfigMap": {},
        "Namespace": {"metadata": {"labels": {"team": "a"}}},
        "NetworkPolicy": {"spec": {"podSelector": {}}},
        "PriorityClass": {"value": 1},
        "Deployment": {"spec": {"replicas": 0, "selector": selector, "template": pod}},
    }

    for kind, more in bodies.items():
        path = f"{collection_of(resource_of(kind))}?dryRun=All"
        _, warning = await operator.ask("POST", path, manifest(kind, "web", more))
        assert (kind, warning) == (kind, "")


async def test_a_controller_that_writes_a_status_is_not_told(site: Site) -> None:
    operator = Operator(site, "hub")
    path = collection_of(resource_of("ServiceCIDR"))
    spec = {"spec": {"cidrs": ["10.98.0.0/24"]}}
    await operator.ask("POST", path, manifest("ServiceCIDR", "told", spec))

    merge = "application/merge-patch+json"
    status = {"status": {"conditions": []}}
    _, warning = await operator.ask("PATCH", f"{path}/told/status", status, merge)
    await operator.ask("DELETE", f"{path}/told")

    assert warning == ""
