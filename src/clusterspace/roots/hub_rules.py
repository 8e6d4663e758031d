"""Which rules hold on a kube-apiserver that is the hub: looked at, and tried."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, cast

from clusterspace.apis.policies import OVERRIDE_POLICIES, OVERRIDE_POLICY
from clusterspace.apiserver.kubernetes_hub import manifests
from clusterspace.apiserver.kubernetes_hub.manifests import WebhookAddress
from clusterspace.apiserver.kubernetes_hub.promises import PROMISES, SHORTFALLS
from clusterspace.client.discovery import is_own_server
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.errors import AlreadyExists, ApiError, Forbidden, Invalid
from clusterspace.kube.objects import Object, name_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.init import covers, place_of

_ADMISSION: Final = "admissionregistration.k8s.io"
_CONFIGURATION: Final = ResourcePath(
    GroupVersionResource(_ADMISSION, "v1", "mutatingwebhookconfigurations"), name=manifests.NAME
)
_INIT: Final = "run `clusterspace init` again"


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What is to be said of one rule."""

    says: str
    is_bad: bool = False
    """Whether it should hold and does not; one that cannot hold is neither bad nor good."""
    holds: bool = True
    advice: str = ""


async def examine_rules(hub: ClusterClient) -> AsyncGenerator[RuleReport]:
    """Say of each rule whether it holds; our own hub has them built in, and nothing is said."""
    if await is_own_server(hub.connection):
        return
    try:
        policies = await _policies_that_hold(hub)
        configuration = await hub.find(_CONFIGURATION)
    except Forbidden as error:
        advice = "ask as an administrator of the API server"
        yield RuleReport(f"rules could not be looked at: {error.message}", advice=advice)
        return
    entries = cast("list[Object]", (configuration or {}).get("webhooks") or [])
    hooks = {
        str(each.get("name")).removesuffix(".clusterspace.io")
        for each in entries
        if each.get("failurePolicy") == "Fail"
    }
    silence = "" if not hooks else await _webhook_problem(hub)
    if silence:
        says = f"the webhook does not answer, so nothing of the fleet is written: {silence}"
        advice = "start `clusterspace webhook` where `init --webhook-url` says it is"
        yield RuleReport(says, is_bad=True, holds=False, advice=advice)
    for promise in PROMISES:
        missing = [f"webhook {each}" for each in promise.webhooks if each not in hooks]
        missing += [f"policy {each}" for each in promise.policies if each not in policies]
        if missing:
            says = f"{promise.rule}: {', '.join(missing)} is missing or was changed"
            yield RuleReport(says, is_bad=True, holds=False, advice=_INIT)
        else:
            yield RuleReport(f"{promise.rule}: {promise.says}")
    for shortfall in SHORTFALLS:
        yield RuleReport(f"{shortfall.rule}, not in full: {shortfall.says}", holds=False)


async def _policies_that_hold(hub: ClusterClient) -> set[str]:
    """Return the policies that are there as `init` writes them, and bound."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    wanted = [e for e in manifests.hub_objects(WebhookAddress()) if e["kind"] in kinds]
    found: dict[str, int] = {}
    for manifest in wanted:
        existing = await hub.find(place_of(manifest))
        if existing is not None and covers(existing, manifest):
            found[name_of(manifest)] = found.get(name_of(manifest), 0) + 1
    return {name for name, count in found.items() if count == len(kinds)}


async def _webhook_problem(hub: ClusterClient) -> str:
    """Try a policy that renames; return why nobody was there to refuse it, if so.

    Not a Cluster, which Karmada's own API server keeps where no webhook is asked.
    """
    renaming = {"path": "/metadata/name", "operator": "replace", "value": "another"}
    policy = {
        "apiVersion": OVERRIDE_POLICIES.api_version,
        "kind": OVERRIDE_POLICY,
        "metadata": {"name": "clusterspace-doctor", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "overrideRules": [{"overriders": {"plaintext": [renaming]}}],
        },
    }
    place = ResourcePath(OVERRIDE_POLICIES, "default")
    try:
        await hub.create(place, policy, WriteOptions(is_dry_run=True))
    except (Invalid, Forbidden, AlreadyExists):
        return ""
    except ApiError as error:
        return error.message if "webhook" in error.message else ""
    return "a policy that gives objects another name would be stored"
