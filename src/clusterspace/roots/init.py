"""`clusterspace init`: a kube-apiserver becomes the hub, or is left as it was before.

Look, plan, apply. The plan is what is missing there or differs; an object that is as it should be
is not written, so that to run it again after a failure, or an upgrade, does what is left to do.
What was not made by `init` is not changed: definitions of others are adopted or refused, and any
other object under one of our names is a refusal.
"""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis.crds import definitions
from clusterspace.apiserver.identity.authority import Authority, KeyPair, expires_at, needs_renewal
from clusterspace.apiserver.kubernetes_hub import manifests
from clusterspace.apiserver.kubernetes_hub.adoption import (
    missing_fields,
    refusal_of,
    unknown_versions,
)
from clusterspace.apiserver.kubernetes_hub.manifests import ACCOUNTS, NAMESPACE, WebhookAddress
from clusterspace.client.discovery import OWN_BUILD
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, WriteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import CannotInstall, NotFound
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import open_client, read_pem
from clusterspace.roots.installation import Installation, write_private
from clusterspace.roots.kubeconfigs import kubeconfig_of

OLDEST_MINOR: Final = 30
"""Kubernetes 1.30 is the first with ValidatingAdmissionPolicies that need not be switched on."""

TOKEN_SECONDS: Final = 30 * 24 * 3600
"""How long a part may log in with the kubeconfig written for it, if the API server agrees."""

_FIELD_MANAGER: Final = "clusterspace-init"
_AT_ONCE: Final = 8
_SERVED_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1

_PLURALS: Final = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}
_KEPT: Final = frozenset({"CustomResourceDefinition", "Namespace"})
"""What holds objects of users: to delete one would delete all that is in it."""

_AGGREGATED: Final = ResourcePath(
    GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices"),
    name="v1alpha1.cluster.karmada.io",
)
_CLUSTERS: Final = "clusters.cluster.karmada.io"

Progress = Callable[[str], None]


class Action(Enum):
    """What becomes of an object."""

    CREATE = "create"
    UPDATE = "update"
    UNCHANGED = "unchanged"
    ADOPT = "adopt"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Step:
    """One object, what becomes of it, and what else is to be said of that."""

    action: Action
    manifest: Object
    note: str = ""
    uid: str = ""
    """Of the object that is there, if it is to go."""

    @property
    def subject(self) -> str:
        """The object as people name it."""
        namespace = namespace_of(self.manifest)
        place = f" in {namespace}" if namespace else ""
        return f"{self.manifest['kind']} {name_of(self.manifest)}{place}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is to be done, in order."""

    steps: tuple[Step, ...]
    version: str
    """Of the API server."""

    def counted(self) -> str:
        """Return how many objects become what."""
        counts = {each: sum(step.action is each for step in self.steps) for each in Action}
        return ", ".join(f"{count} {each.value}" for each, count in counts.items() if count)


def place_of(manifest: Object) -> ResourcePath:
    """Return where an object of an installation is."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    resource = GroupVersionResource(group, version, _PLURALS[str(manifest["kind"])])
    return ResourcePath(resource, namespace_of(manifest), name_of(manifest))


def covers(existing: Any, desired: Any) -> bool:
    """Whether an object says all that it should; the server adds defaults, which are its own."""
    if isinstance(desired, dict):
        wanted = cast("Object", desired)
        if not isinstance(existing, dict):
            return not wanted and existing is None
        there = cast("Object", existing)
        return all(covers(there.get(key), value) for key, value in wanted.items())
    if isinstance(desired, list):
        listed, found = cast("list[Any]", desired), cast("list[Any]", existing or [])
        return len(listed) == len(found) and all(map(covers, found, listed))
    # What is empty or false is left out by the server.
    return existing == desired or (existing is None and desired in ("", False, 0))


# -- the plan -------------------------------------------------------------------------------------


async def plan_installation(hub: ClusterClient, clock: Clock, *, webhook_url: str = "") -> Plan:
    """Look at an API server and return what is to be done; CannotInstall for what stands against.

    Every reason is found before anything is written, and all of them are named.
    """
    version = await _read_version(hub)
    secret = await _authority(hub, clock.now())
    bundle = b64decode(str(find_at(secret, "data", "ca.crt")))
    # Who runs this again to bring things up to date need not know where the webhook is.
    address = WebhookAddress(webhook_url or await _present_url(hub), bundle)
    namespaces, *rest = _by_kind((*manifests.hub_objects(address), *await _cluster_info(hub)))
    # The authority before what trusts it, and behind the namespace that it is in.
    desired = (*namespaces, secret, *(each for kind in rest for each in kind))
    refusals: list[str] = []
    steps: list[Step] = []
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(manifest: Object) -> Object | None:
        async with gate:
            return await hub.find(place_of(manifest))

    ours = [with_metadata(each, labels=manifests.LABELS) for each in definitions()]
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(look(each)) for each in (*ours, *desired)]
        aggregated = group.create_task(hub.find(_AGGREGATED))
    existing = [each.result() for each in found]
    served_elsewhere = find_at(aggregated.result(), "spec", "service") is not None
    for manifest, there in zip(ours, existing, strict=False):
        if name_of(manifest) == _CLUSTERS and served_elsewhere:
            note = "Clusters are served by an extension server, which our policies do not reach"
            steps.append(Step(Action.ADOPT, manifest, note))
            continue
        refusal = _definition_refusal(manifest, there)
        if refusal:
            refusals.append(refusal)
        elif there is not None and not _is_ours(there):
            lost = missing_fields(there, manifest)
            note = (
                f"it has no fields {', '.join(lost)}: what is written there is lost" if lost else ""
            )
            steps.append(Step(Action.ADOPT, manifest, note))
        else:
            steps.append(Step(_action(manifest, there), manifest))
    for manifest, there in zip(desired, existing[len(ours) :], strict=True):
        step = Step(_action(manifest, there), manifest)
        if there is not None and manifest["kind"] == "Namespace" and not _is_ours(there):
            step = Step(Action.ADOPT, manifest)
        elif there is not None and not _is_ours(there):
            refusals.append(
                f"{step.subject} is there and was not made by `clusterspace init`:"
                " remove it, or give it another name"
            )
        steps.append(step)
    if refusals:
        raise CannotInstall(hub.connection.settings.server, "; ".join(refusals))
    return Plan(tuple(steps), version)


def _definition_refusal(manifest: Object, there: Object | None) -> str:
    if there is None:
        return ""
    # What is ours is brought up to date; only what a later version wrote stands against that.
    return unknown_versions(there, manifest) if _is_ours(there) else refusal_of(there, manifest)


def _is_ours(existing: Object) -> bool:
    return labels_of(existing).get(manifests.MANAGED_BY) == manifests.LABELS[manifests.MANAGED_BY]


def _action(manifest: Object, existing: Object | None) -> Action:
    if existing is None:
        return Action.CREATE
    return Action.UNCHANGED if covers(existing, manifest) else Action.UPDATE


def _by_kind(objects: Iterable[Object]) -> list[list[Object]]:
    kinds: dict[str, list[Object]] = {}
    for each in objects:
        kinds.setdefault(str(each["kind"]), []).append(each)
    return list(kinds.values())


async def _read_version(hub: ClusterClient) -> str:
    answer = await hub.connection.ask(ApiRequest("GET", "/version"))
    said = msgspec.json.decode(answer.body, type=dict[str, Any])
    version = str(said.get("gitVersion") or "")
    if OWN_BUILD in version:
        why = "it is Clusterspace's own hub, which has all of this built in"
        raise CannotInstall(hub.connection.settings.server, why)
    minor = "".join(filter(str.isdigit, str(said.get("minor") or "")))
    if not minor or int(minor) < OLDEST_MINOR:
        why = (
            f"it is Kubernetes {version or 'of an unknown version'}, and the rules of a hub need "
            f"1.{OLDEST_MINOR} or later, which has ValidatingAdmissionPolicies"
        )
        raise CannotInstall(hub.connection.settings.server, why)
    return version


async def _cluster_info(hub: ClusterClient) -> tuple[Object, ...]:
    """Return what tells newcomers where the hub is; nothing where kubeadm or the like has done it.

    Without an authority in the administrator's kubeconfig there is nothing that could be told.
    """
    settings = hub.connection.settings
    authority = read_pem(settings.trust.authority)
    content = kubeconfig_of({"": settings.server}, authority, AuthInfo()).decode()
    wanted = manifests.cluster_info(content)
    existing = await hub.find(place_of(wanted[0]))
    if not authority or (existing is not None and not _is_ours(existing)):
        return ()
    return wanted


async def _present_url(hub: ClusterClient) -> str:
    existing = await hub.find(place_of(manifests.webhook_configuration(WebhookAddress())))
    webhooks = cast("list[Object]", (existing or {}).get("webhooks") or [{}])
    return str(find_at(webhooks[0], "clientConfig", "url") or "").removesuffix("/admit")


async def _authority(hub: ClusterClient, now: float) -> Object:
    """Return the Secret with the webhook's authority: the present one, or a new one in time.

    The new one is trusted beside the old: replicas that still show a certificate of the old one
    are believed until it ends.
    """
    place = place_of(manifests.authority_secret(b"", b"", b""))
    existing = await hub.find(place)
    data = cast("dict[str, str]", find_at(existing, "data") or {})
    bundle, current = (b64decode(data.get(key, "")) for key in ("ca.crt", "tls.crt"))
    if existing is not None and current and not needs_renewal(current, now):
        return manifests.authority_secret(bundle, current, b64decode(data["tls.key"]))
    pair: KeyPair = Authority.create("clusterspace-webhook", now).pair
    before = current if current and expires_at(current) > now else b""
    return manifests.authority_secret(pair.certificate + before, pair.certificate, pair.key)


# -- carried out ----------------------------------------------------------------------------------


async def apply_plan(hub: ClusterClient, plan: Plan, progress: Progress, clock: Clock) -> None:
    """Write what the plan says; harmless if repeated, and whole after any repetition."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def write(step: Step) -> None:
        async with gate:
            options = WriteOptions(field_manager=_FIELD_MANAGER, force=True)
            await hub.apply(place_of(step.manifest), step.manifest, options)
            progress(f"{step.action.value}d {step.subject}")

    for kind in _by_kind(step.manifest for step in plan.steps):
        due = [
            step
            for step in plan.steps
            if step.manifest["kind"] == kind[0]["kind"]
            and step.action in (Action.CREATE, Action.UPDATE)
        ]
        async with asyncio.TaskGroup() as group:
            for step in due:
                group.create_task(write(step))
        if due and kind[0]["kind"] == "CustomResourceDefinition":
            await _until_served(hub, [place_of(step.manifest) for step in due], clock)


async def _until_served(hub: ClusterClient, places: list[ResourcePath], clock: Clock) -> None:
    """Return when the API server serves these kinds; CannotInstall when it does not."""
    waiting = list(places)
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while waiting:
                place = waiting[-1]
                found = await hub.get(place)
                if is_true(find_at(found, "status", "conditions"), "Established"):
                    waiting.pop()
                else:
                    await clock.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        why = f"it does not serve {waiting[-1].name}: kubectl describe crd {waiting[-1].name}"
        raise CannotInstall(hub.connection.settings.server, why) from error


async def plan_removal(hub: ClusterClient) -> Plan:
    """Return what `--uninstall` takes away: what `init` made, and nothing that holds objects."""
    wanted = (
        manifests.authority_secret(b"", b"", b""),
        *manifests.cluster_info(""),
        *manifests.hub_objects(WebhookAddress()),
    )
    steps: list[Step] = []
    # What refuses writes goes first: a half-finished removal leaves a hub that works.
    for manifest in reversed(wanted):
        existing = await hub.find(place_of(manifest))
        if existing is None:
            continue
        if manifest["kind"] in _KEPT:
            steps.append(Step(Action.KEEP, manifest, "with all that is in it"))
        elif _is_ours(existing):
            steps.append(Step(Action.DELETE, manifest, uid=uid_of(existing)))
        else:
            steps.append(Step(Action.KEEP, manifest, "it was not made by `clusterspace init`"))
    crds = ResourcePath(place_of(definitions()[0]).resource)
    there = {name_of(each) for each in await hub.list_objects(crds)}
    note = "with every object of its kind"
    steps += (Step(Action.KEEP, each, note) for each in definitions() if name_of(each) in there)
    return Plan(tuple(steps), await _read_version(hub))


async def apply_removal(hub: ClusterClient, plan: Plan, progress: Progress) -> None:
    """Take away what the plan names, by its UID; what is gone already is no failure."""
    for step in plan.steps:
        if step.action is Action.DELETE:
            try:
                await hub.delete(place_of(step.manifest), DeleteOptions(step.uid))
            except NotFound:
                continue
            progress(f"deleted {step.subject}")


async def write_kubeconfigs(
    settings: ConnectionSettings, hub: ClusterClient, directory: Path, progress: Progress
) -> None:
    """Write a kubeconfig for each part, with a token of its account; again, for a newer token."""
    accounts = GroupVersionResource("", "v1", "serviceaccounts")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    for part, account in ACCOUNTS.items():
        place = ResourcePath(accounts, NAMESPACE, account).with_subresource("token")
        answered = await hub.create(place, request)
        token = str(find_at(answered, "status", "token") or "")
        file = Installation(directory).component_kubeconfig(part)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = kubeconfig_of(
            {"hub": settings.server},
            read_pem(settings.trust.authority),
            AuthInfo(token=token),
            user=part,
        )
        write_private(file, content)
        ends = find_at(answered, "status", "expirationTimestamp")
        progress(f"wrote {file}, good until {ends}; run init again for a newer one")


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What is asked of one run of `init`."""

    webhook_url: str = ""
    kubeconfigs: Path | None = None
    is_removal: bool = False
    is_dry_run: bool = False


async def initialize(
    request: InitRequest, settings: ConnectionSettings, progress: Progress
) -> Plan:
    """Make a kube-apiserver the hub, or take that back; return what was planned."""
    clock = SystemClock()
    async with open_client(replace(settings, cluster="hub")) as hub:
        if request.is_removal:
            plan = await plan_removal(hub)
        else:
            plan = await plan_installation(hub, clock, webhook_url=request.webhook_url)
        if request.is_dry_run:
            return plan
        if request.is_removal:
            await apply_removal(hub, plan, progress)
        else:
            await apply_plan(hub, plan, progress, clock)
            if request.kubeconfigs is not None:
                await write_kubeconfigs(settings, hub, request.kubeconfigs, progress)
    return plan
