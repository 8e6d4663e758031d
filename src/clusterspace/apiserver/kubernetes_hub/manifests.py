"""What a kube-apiserver needs to be the hub, beside our kinds: pure, and in the order of writing.

    Namespaces              karmada-cluster, and clusterspace-system for what is ours alone
    ServiceAccounts, RBAC   controllers, fleet and webhook, each with what its part needs
    ValidatingAdmission-    policies.yaml: rules that CEL can say
      Policies
    MutatingWebhook-        the other rules, asked of `clusterspace webhook`
      Configuration

On our own hub limits stand beside the roles (access/components.py). Here a limit on a namespace is
a Role in it, one on names is a policy, and one on fields is the webhook's.
"""

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from clusterspace.apis import tunnels, witnesses
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, PARTS_NAMESPACE
from clusterspace.apis.identities import (
    AGENT_USER_PREFIX,
    AGENTS,
    CONTROLLERS_USER,
    FLEET_USER,
    REGISTRATION_GROUP,
)
from clusterspace.apiserver.access.default_roles import COMPONENT_ROLES
from clusterspace.apiserver.access.rbac import EVERYTHING, RBAC_GROUP, Rule
from clusterspace.kube.objects import Object

NAMESPACE: Final = PARTS_NAMESPACE
"""Where the accounts of the parts are, and the authority of the webhook."""

NAME: Final = "clusterspace"
AUTHORITY_SECRET: Final = "clusterspace-webhook-authority"  # noqa: S105 - a name
SERVICE: Final = "clusterspace-webhook"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABELS: Final = {MANAGED_BY: "clusterspace-init"}
"""On whatever `init` makes, so that what it takes away again is its own."""

ACCOUNTS: Final = {
    "controllers": "clusterspace-controllers",
    "fleet": "clusterspace-fleet",
    "webhook": "clusterspace-webhook",
}
"""The parts that log in at the hub, by their verb on the command line, and their accounts."""

WEBHOOK_USER: Final = "system:clusterspace-webhook"
_USERS: Final = {"controllers": CONTROLLERS_USER, "fleet": FLEET_USER, "webhook": WEBHOOK_USER}

_READ: Final = ("get", "list", "watch")
_RBAC: Final = f"{RBAC_GROUP}/v1"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_TIMEOUT_SECONDS: Final = 10
_ELSEWHERE: Final = frozenset({"leases", "secrets", "configmaps"})
"""What the controllers write in single namespaces: a Role there says so, not the ClusterRole."""


def account_user(part: str) -> str:
    """Return the user name that a part's account has at the hub."""
    return f"system:serviceaccount:{NAMESPACE}:{ACCOUNTS[part]}"


def part_user(username: str) -> str:
    """Return who a user is for our rules: the account of a part is that part."""
    return next((_USERS[part] for part in ACCOUNTS if account_user(part) == username), username)


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """Where the API server finds `clusterspace webhook`, and whom it trusts there."""

    url: str = ""
    """Without one, it is a Service of the hub's own cluster."""
    authority: bytes = b""

    @property
    def server_names(self) -> tuple[str, ...]:
        """What the API server calls it: its certificate has these names."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        return tuple(
            f"{SERVICE}.{NAMESPACE}.svc{end}" for end in ("", ".cluster", ".cluster.local")
        )

    def client_config(self) -> Object:
        """Return the `clientConfig` of a webhook."""
        bundle = b64encode(self.authority).decode()
        if self.url:
            return {"url": f"{self.url.rstrip('/')}/admit", "caBundle": bundle}
        service = {"name": SERVICE, "namespace": NAMESPACE, "path": "/admit", "port": 443}
        return {"service": service, "caBundle": bundle}


def hub_objects(address: WebhookAddress) -> tuple[Object, ...]:
    """Return everything but definitions and the authority's Secret.

    Roles come before what enforces rules, so that whoever is asked by the API server may answer.
    """
    return (
        *(_object("v1", "Namespace", name) for name in (CLUSTER_NAMESPACE, NAMESPACE)),
        *(_object("v1", "ServiceAccount", name, NAMESPACE) for name in ACCOUNTS.values()),
        *_roles(),
        *_policies(),
        webhook_configuration(address),
    )


def _object(api_version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Object:
    metadata: Object = {"name": name, "labels": LABELS}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def _role(
    part: str, rules: tuple[Rule, ...], namespace: str = "", *, existing: str = ""
) -> list[Object]:
    """Return a part's role and its binding, in a namespace or for all of them.

    Bound to the account, and to the name that our own hub gives the part: whoever has the
    authority of the API server's clients may issue certificates instead.
    """
    scope, name = "" if namespace else "Cluster", existing or ACCOUNTS[part]
    role = _object(
        _RBAC, f"{scope}Role", name, namespace, rules=[rule.as_object() for rule in rules]
    )
    account = {"kind": "ServiceAccount", "name": ACCOUNTS[part], "namespace": NAMESPACE}
    user = {"kind": "User", "apiGroup": RBAC_GROUP, "name": _USERS[part]}
    binding = _object(
        _RBAC,
        f"{scope}RoleBinding",
        ACCOUNTS[part],
        namespace,
        subjects=[account, user],
        roleRef={"apiGroup": RBAC_GROUP, "kind": f"{scope}Role", "name": name},
    )
    return [binding] if existing else [role, binding]


def _roles() -> list[Object]:
    rules = {role.name: role.rules for role in COMPONENT_ROLES}
    everywhere = tuple(
        rule
        for rule in rules[CONTROLLERS_USER]
        if not (set(rule.resources) <= _ELSEWHERE and set(rule.verbs) - set(_READ))
    )
    leases = Rule(
        (*_READ, "create", "delete", "patch", "update"), ("coordination.k8s.io",), ("leases",)
    )
    kept = (
        leases,
        Rule(("delete",), ("",), ("secrets",)),
        Rule(("create", "update"), ("",), ("configmaps",)),
    )
    webhook = (
        Rule(_READ, ("apiextensions.k8s.io",), ("customresourcedefinitions",)),
        Rule(("get", "list"), ("cluster.karmada.io",), ("clusters",)),
        Rule(("get", "list"), ("cluster.kubernetes-fleet.io",), ("memberclusters",)),
        Rule(("get", "list"), ("policy.karmada.io",), ("federatedresourcequotas",)),
        Rule(("update",), ("policy.karmada.io",), ("federatedresourcequotas/status",)),
        Rule(("get", "list"), ("work.karmada.io",), ("resourcebindings",)),
        Rule(("get",), ("",), ("namespaces",), ("kube-system",)),
        Rule(
            ("get", "list"),
            (RBAC_GROUP,),
            ("roles", "clusterroles", "rolebindings", "clusterrolebindings"),
        ),
        Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
        # Agents ask for certificates; kube-controller-manager signs what is approved.
        Rule(_READ, ("certificates.k8s.io",), ("certificatesigningrequests",)),
        Rule(("update",), ("certificates.k8s.io",), ("certificatesigningrequests/approval",)),
        Rule(
            ("approve",),
            ("certificates.k8s.io",),
            ("signers",),
            ("kubernetes.io/kube-apiserver-client",),
        ),
        Rule(
            ("get",),
            ("admissionregistration.k8s.io",),
            ("mutatingwebhookconfigurations",),
            (NAME,),
        ),
    )
    registration = _object(
        _RBAC,
        "ClusterRoleBinding",
        "clusterspace-registration",
        subjects=[{"kind": "Group", "apiGroup": RBAC_GROUP, "name": REGISTRATION_GROUP}],
        roleRef={"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
    )
    return [
        *_role("controllers", everywhere),
        *_role("controllers", kept, CLUSTER_NAMESPACE),
        *_role("controllers", (leases,), "kube-system"),
        *_role("controllers", rules["clusterspace:tunnels"], witnesses.LEASE_NAMESPACE),
        *_role(
            "fleet", tuple(rule for rule in rules[FLEET_USER] if "secrets" not in rule.resources)
        ),
        *_role("fleet", (Rule(_READ, ("",), ("secrets",)),), CLUSTER_NAMESPACE),
        *_role("fleet", rules["clusterspace:tunnels"], tunnels.LEASE_NAMESPACE),
        *_role("fleet", (), "kube-system", existing="extension-apiserver-authentication-reader"),
        *_role("webhook", webhook),
        *_role(
            "webhook",
            (
                Rule(("get",), ("",), ("secrets",), (AUTHORITY_SECRET,)),
                Rule(("get", "list", "update", "delete"), ("",), ("configmaps",)),
                Rule(
                    ("get", "list", "create", "update", "delete"),
                    ("coordination.k8s.io",),
                    ("leases",),
                ),
            ),
            NAMESPACE,
        ),
        registration,
    ]


# -- what is refused ------------------------------------------------------------------------------


def _is_part(part: str) -> str:
    return f"request.userInfo.username in ['{_USERS[part]}', '{account_user(part)}']"


_IS_AGENT: Final = (
    f"request.userInfo.username.startsWith('{AGENT_USER_PREFIX}') || "
    f"'{AGENTS}' in request.userInfo.groups"
)


@cache
def policy_documents() -> tuple[Object, ...]:
    """Return the policies as they are written down."""
    text = Path(__file__).with_name("policies.yaml").read_text()
    return tuple(each for each in yaml.safe_load_all(text) if each)


def _policies() -> list[Object]:
    """Return each policy and its binding; policies about somebody are asked about nobody else."""
    conditions = {"controllers": _is_part("controllers"), "agents": _IS_AGENT}
    found: list[Object] = []
    for written in policy_documents():
        spec: Object = {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": written["rules"]},
            "validations": written["validations"],
        }
        if "variables" in written:
            spec["variables"] = written["variables"]
        if "users" in written:
            name = written["users"]
            spec["matchConditions"] = [{"name": name, "expression": conditions[name]}]
        binding = {"policyName": written["name"], "validationActions": ["Deny"]}
        found += (
            _object(_ADMISSION, "ValidatingAdmissionPolicy", written["name"], spec=spec),
            _object(_ADMISSION, "ValidatingAdmissionPolicyBinding", written["name"], spec=binding),
        )
    return found


_OWN_KINDS: Final = {
    "cluster.karmada.io": ("clusters",),
    "cluster.kubernetes-fleet.io": ("memberclusters", "internalmemberclusters"),
    "policy.karmada.io": (EVERYTHING,),
    "work.karmada.io": ("resourcebindings", "clusterresourcebindings", "works"),
    "placement.kubernetes-fleet.io": (EVERYTHING,),
    "apps.karmada.io": (EVERYTHING,),
    "autoscaling.karmada.io": (EVERYTHING,),
    "config.karmada.io": (EVERYTHING,),
    "networking.karmada.io": (EVERYTHING,),
    "remedy.karmada.io": (EVERYTHING,),
    "search.karmada.io": ("resourceregistries",),
}
"""Groups of ours and the resources of each whose objects are completed and checked."""


def webhook_configuration(address: WebhookAddress) -> Object:
    """Return what the webhook is asked about: our kinds, and what our parts and agents write.

    Without an answer the write is refused: who is let in while nobody looks stays in. The leases
    that elect leaders are left out, so that a webhook that is down stops work and not elections.
    """
    not_leases = {
        "name": "no-election",
        "expression": "!(request.resource.group == 'coordination.k8s.io' && "
        "request.namespace == 'kube-system')",
    }
    ours = ", ".join(f"'{group}'" for group in _OWN_KINDS)
    elsewhere = {"name": "elsewhere", "expression": f"!(request.resource.group in [{ours}])"}

    def entry(name: str, rules: list[Object], *conditions: Object, **more: Any) -> Object:
        return {
            "name": f"{name}.clusterspace.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": address.client_config(),
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": _TIMEOUT_SECONDS,
            "rules": rules,
            **({"matchConditions": list(conditions)} if conditions else {}),
            **more,
        }

    def rule(group: str, *resources: str) -> Object:
        return {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": list(resources),
        }

    in_namespace = {"matchLabels": {"kubernetes.io/metadata.name": CLUSTER_NAMESPACE}}
    anything = [rule(EVERYTHING, EVERYTHING, f"{EVERYTHING}/status")]
    return _object(
        _ADMISSION,
        "MutatingWebhookConfiguration",
        NAME,
        webhooks=[
            entry("kinds", [rule(group, *names) for group, names in _OWN_KINDS.items()]),
            entry("credentials", [rule("", "secrets")], namespaceSelector=in_namespace),
            entry(
                "agents",
                anything,
                {"name": "agents", "expression": _IS_AGENT},
                elsewhere,
                not_leases,
            ),
            entry(
                "controllers",
                anything,
                {"name": "controllers", "expression": _is_part("controllers")},
                elsewhere,
                not_leases,
            ),
        ],
    )


def cluster_info(kubeconfig: str) -> tuple[Object, ...]:
    """Return where the hub is and by whose certificates it is known, for everybody to read.

    A cluster that registers looks here first, as one that joins a kubeadm cluster does; it believes
    what the fingerprint it was given vouches for.
    """
    name, namespace = "clusterspace-cluster-info", "kube-public"
    readable = Rule(("get",), ("",), ("configmaps",), ("cluster-info",)).as_object()
    groups = [
        {"kind": "Group", "apiGroup": RBAC_GROUP, "name": group}
        for group in ("system:unauthenticated", "system:authenticated")
    ]
    role = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name}
    return (
        _object("v1", "ConfigMap", "cluster-info", namespace, data={"kubeconfig": kubeconfig}),
        _object(_RBAC, "Role", name, namespace, rules=[readable]),
        _object(_RBAC, "RoleBinding", name, namespace, subjects=groups, roleRef=role),
    )


def authority_secret(bundle: bytes, certificate: bytes, key: bytes) -> Object:
    """Return the Secret with the authority that vouches for the webhook's certificates.

    `ca.crt` is what the API server trusts: the authority in use, and the one before it for as
    long as certificates of that may still be shown.
    """
    data = {"ca.crt": bundle, "tls.crt": certificate, "tls.key": key}
    encoded = {name: b64encode(content).decode() for name, content in data.items()}
    return _object("v1", "Secret", AUTHORITY_SECRET, NAMESPACE, type="Opaque", data=encoded)
