"""What stands between a control plane and production: in order, each with what mends it.

Settings are asked of hub and fleet API server themselves (`/flagz`), objects of the hub; files are
looked at where they are on this machine. Nothing is changed, and nothing is believed that could
not be seen: what cannot be asked is a finding, too.
"""

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, cast

from clusterspace import __version__
from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.apiserver import flagz
from clusterspace.apiserver.http.users import ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED
from clusterspace.apiserver.identity.authority import expires_at
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import ApiError, ClusterspaceError
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.installation import Installation
from clusterspace.roots.local.doctor import Finding, Severity

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_BOOTSTRAPPING: Final = "kubernetes.io/bootstrapping"
_OWN_PREFIXES: Final = ("kube-", "karmada-", "fleet-", "clusterspace-")
_EVERYBODY: Final = frozenset({AUTHENTICATED, UNAUTHENTICATED, "system:serviceaccounts"})
_NOBODY: Final = frozenset({ANONYMOUS.name, UNAUTHENTICATED})
_SECURITY: Final = frozenset(
    {
        ("", "secrets"),
        ("", "serviceaccounts"),
        (_RBAC, "*"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        (_ADMISSION, "*"),
    }
)
_ANYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not listened on
_DAY: Final = 24 * 3600.0
_SOON_SECONDS: Final = 30 * _DAY
_MAX_SKEW_SECONDS: Final = 30.0
_SHOWN: Final = 3
"""How many objects a finding names; the command finds the others."""


@dataclass(frozen=True, slots=True)
class ProductionFiles:
    """What of a hub is on this machine; None where it is elsewhere."""

    data_dir: Path | None = None
    backups: Path | None = None


async def examine_production(
    hub: ClusterClient, files: ProductionFiles, clock: Clock, fleet: ClusterClient | None = None
) -> AsyncGenerator[Finding]:
    """Look at everything a review would ask for, and yield what was found.

    `fleet` asks the fleet API server, where one is known.
    """
    flags: dict[str, str] = {}
    try:
        flags = await _flags(hub)
        for finding in examine_flags(flags):
            yield finding
    except ClusterspaceError as error:
        seen = f"could not be asked for at {flagz.PATH}: {error}"
        advice = "run it with the kubeconfig of an administrator of the hub"
        yield Finding("settings", Severity.BAD, seen, advice)
    if fleet is None:
        seen = "was not looked at: no kubeconfig here says where it is"
        advice = "clusterspace doctor --production --kubeconfig FILE, with a context `fleet`"
        yield Finding("fleet", Severity.WARNING, seen, advice)
    else:
        try:
            for finding in examine_fleet_flags(await _flags(fleet)):
                yield finding
        except ClusterspaceError as error:
            seen = f"its settings could not be asked for at {flagz.PATH}: {error}"
            yield Finding("fleet", Severity.BAD, seen, "clusterspace status")
    for examine in (_tokens, _roles, _bindings, _webhooks, _namespaces, _whoami):
        try:
            async for finding in examine(hub):
                yield finding
        except ApiError as error:
            subject = examine.__name__.removeprefix("_")
            yield Finding(subject, Severity.BAD, f"could not be asked for: {error.message}",
                          "run it with the kubeconfig of an administrator of the hub")  # fmt: skip
    is_shared = bool(flags.get("etcd-servers"))
    for finding in (*examine_files(files), *examine_backups(files, clock, is_shared=is_shared)):
        yield finding
    async for finding in _versions_and_clock(hub, clock):
        yield finding
    for finding in _certificates(hub, files, clock):
        yield finding


async def _flags(server: ClusterClient) -> dict[str, str]:
    """Ask a server what it was started with."""
    answer = await server.connection.ask(ApiRequest("GET", flagz.PATH))
    return flagz.read_flags(answer.body.decode())


def _judged(subject: str, bad: Iterable[str], seen: str, well: str, advice: str) -> Finding:
    """Return one finding about all that is bad, naming the first few; OK when nothing is."""
    named = list(bad)
    if not named:
        return Finding(subject, Severity.OK, well)
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return Finding(subject, Severity.BAD, f"{seen}: {', '.join(named[:_SHOWN])}{more}",
                   advice.replace("NAME", named[0]))  # fmt: skip


def examine_flags(flags: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what the hub was started with."""
    if flags.get("encryption-provider-config"):
        yield Finding("encryption", Severity.OK, "what is stored is encrypted by a configuration")
    else:
        advice = "clusterspace hub --encryption-provider-config FILE; clusterspace store rewrite"
        yield Finding("encryption", Severity.BAD, "Secrets lie in the store as they came", advice)
    yield from _examine_server(flags, "hub")
    if flags.get("accept-karmada-agents") == "true":
        seen = "a token of Karmada's registers clusters under any free name, for a year"
        advice = (
            "clusterspace hub, without --accept-karmada-agents; or bind each token to a cluster"
        )
        yield Finding("karmada agents", Severity.WARNING, seen, advice)
    if flags.get("token-auth-file"):
        advice = "clusterspace hub, without --token-auth-file; kubectl create token ACCOUNT"
        seen = "there is a file of tokens that never end"
        yield Finding("static tokens", Severity.BAD, seen, advice)
    else:
        yield Finding("static tokens", Severity.OK, "there is no file of them")


def examine_fleet_flags(flags: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what the fleet API server was started with; each subject begins with `fleet`."""
    for finding in _examine_server(flags, "fleet"):
        yield replace(finding, subject=f"fleet {finding.subject}")
    if flags.get("insecure-skip-tls-verify") == "true":
        seen = "it believes whoever answers at the hub's address"
        advice = "give it a kubeconfig with certificate-authority-data: clusterspace certs"
        yield Finding("fleet hub", Severity.BAD, seen, advice)
    else:
        yield Finding("fleet hub", Severity.OK, "it knows the hub by its certificate")
    if flags.get("impersonate-masters") == "true":
        seen = "administrators of the hub are administrators of every member"
        advice = "clusterspace fleet, without --impersonate-masters"
        yield Finding("fleet masters", Severity.WARNING, seen, advice)
    else:
        seen = "administrators of the hub have on members what members give them"
        yield Finding("fleet masters", Severity.OK, seen)
    if flags.get("bulk-delete-members") == "true":
        seen = "one `kubectl delete --all` without a cluster deletes in all of them"
        advice = "clusterspace fleet --bulk-delete-members false"
        yield Finding("fleet deletes", Severity.WARNING, seen, advice)
    else:
        seen = "deleting many objects takes the name of a cluster"
        yield Finding("fleet deletes", Severity.OK, seen)


def _examine_server(flags: Mapping[str, str], server: str) -> Iterator[Finding]:
    """Look at what hub and fleet API server have in common."""
    if flags.get("audit-policy-file"):
        yield Finding("audit policy", Severity.OK, "a policy of yours says what is audited")
    else:
        advice = f"clusterspace audit policy > FILE; clusterspace {server} --audit-policy-file FILE"
        seen = "nobody has reviewed what is audited: it is the default"
        yield Finding("audit policy", Severity.BAD, seen, advice)
    if flags.get("audit-log-key-file"):
        yield Finding("audit log", Severity.OK, "its chain needs a key")
    else:
        advice = f"openssl rand -hex 32 > FILE; clusterspace {server} --audit-log-key-file FILE"
        seen = "whoever can write the file can write all of it anew"
        yield Finding("audit log", Severity.BAD, seen, advice)
    if flags.get("enable-priority-and-fairness", "true") == "true":
        yield Finding("fairness", Severity.OK, "FlowSchemas say who gets which share")
    else:
        advice = f"clusterspace {server} --enable-priority-and-fairness"
        yield Finding("fairness", Severity.BAD, "one user can take half of all requests", advice)
    host = flags.get("host", "127.0.0.1")
    if host in _ANYWHERE:
        seen, advice = "it listens on every address", f"clusterspace {server} --host ADDRESS"
        yield Finding("addresses", Severity.BAD, seen, advice)
    elif cidrs := flags.get("allow-member-cidrs"):
        advice = f"clusterspace {server}, without --allow-member-cidrs"
        seen = f"who writes Clusters may have {cidrs} asked, which may be this machine"
        yield Finding("addresses", Severity.WARNING, seen, advice)
    else:
        yield Finding("addresses", Severity.OK, f"it listens on {host}")


async def _tokens(hub: ClusterClient) -> AsyncGenerator[Finding]:
    secrets = await hub.list_objects(ResourcePath(GroupVersionResource("", "v1", "secrets")))
    for_good: list[str] = []
    for each in secrets:
        kind, data = each.get("type"), cast("dict[str, Any]", each.get("data") or {})
        is_endless = kind == "kubernetes.io/service-account-token" or (
            kind == "bootstrap.kubernetes.io/token" and not data.get("expiration")
        )
        # What joins left behind for members is theirs: tokens of members, not of this hub.
        if is_endless and namespace_of(each) != CLUSTER_NAMESPACE:
            for_good.append(f"{namespace_of(each)}/{name_of(each)}")
    first = for_good[0].partition("/") if for_good else ("", "", "")
    advice = f"kubectl delete secret -n {first[0]} {first[2]}; kubectl create token ACCOUNT"
    well = "all tokens in Secrets end by themselves"
    yield _judged("tokens", for_good, "Secrets hold tokens that never end", well, advice)


async def _roles(hub: ClusterClient) -> AsyncGenerator[Finding]:
    roles = await hub.list_objects(ResourcePath(GroupVersionResource(_RBAC, "v1", "clusterroles")))
    wild = [
        name_of(role)
        for role in roles
        if _BOOTSTRAPPING not in labels_of(role)
        and not name_of(role).startswith("system:")
        and any(
            "*" in rule.get("verbs", ())
            and "*" in rule.get("resources", ())
            and "*" in rule.get("apiGroups", ())
            for rule in cast("list[dict[str, Any]]", role.get("rules") or [])
        )
    ]
    well = "no role of yours is for everything"
    yield _judged(
        "wildcards", wild, "ClusterRoles for everything", well, "kubectl edit clusterrole NAME"
    )


async def _bindings(hub: ClusterClient) -> AsyncGenerator[Finding]:
    anonymous: list[str] = []
    broad: list[str] = []
    for plural in ("clusterrolebindings", "rolebindings"):
        for each in await hub.list_objects(ResourcePath(GroupVersionResource(_RBAC, "v1", plural))):
            if _BOOTSTRAPPING in labels_of(each):
                continue
            subjects = cast("list[dict[str, Any]]", each.get("subjects") or [])
            who = {str(subject.get("name")) for subject in subjects}
            where = f" -n {namespace_of(each)}" if namespace_of(each) else ""
            named = f"{plural.removesuffix('s')} {name_of(each)}{where}"
            if who & _NOBODY:
                anonymous.append(named)
            is_admin = find_at(each, "roleRef", "name") == "cluster-admin"
            if (is_admin and who & _EVERYBODY) or MASTERS in who:
                broad.append(named)
    well = "who has not logged in may do nothing that Kubernetes does not allow everybody"
    seen = "bindings are for whoever has not logged in"
    yield _judged("anonymous access", anonymous, seen, well, "kubectl delete NAME")
    well = "nothing of yours is bound to system:masters, nor everybody to cluster-admin"
    seen = "bindings give everything to many, or to system:masters"
    yield _judged("masters", broad, seen, well, "kubectl delete NAME")


async def _webhooks(hub: ClusterClient) -> AsyncGenerator[Finding]:
    lenient: list[str] = []
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        resource = GroupVersionResource(_ADMISSION, "v1", plural)
        for each in await hub.list_objects(ResourcePath(resource)):
            webhooks = cast("list[dict[str, Any]]", each.get("webhooks") or [])
            ignored = (w for w in webhooks if w.get("failurePolicy") == "Ignore")
            if any(map(_guards_security, ignored)):
                lenient.append(f"{plural.removesuffix('s')} {name_of(each)}")
    seen = "what is about rights and credentials passes when these webhooks are away"
    well = "no webhook about rights or credentials is passed over when it is away"
    advice = "kubectl edit NAME, and set failurePolicy: Fail"
    yield _judged("webhooks", lenient, seen, well, advice)


def _guards_security(webhook: Mapping[str, Any]) -> bool:
    for rule in cast("list[dict[str, Any]]", webhook.get("rules") or []):
        groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
        for group, resource in _SECURITY:
            is_group = "*" in groups or group in groups
            if is_group and ("*" in resources or resource == "*" or resource in resources):
                return True
    return False


async def _namespaces(hub: ClusterClient) -> AsyncGenerator[Finding]:
    namespaces = await hub.list_objects(ResourcePath(GroupVersionResource("", "v1", "namespaces")))
    lax = [
        name_of(each)
        for each in namespaces
        if not name_of(each).startswith(_OWN_PREFIXES)
        and labels_of(each).get(_ENFORCE) not in ("baseline", "restricted")
    ]
    advice = f"kubectl label namespace NAME {_ENFORCE}=baseline"
    well = "every namespace enforces a Pod Security Standard"
    yield _judged("pod security", lax, "namespaces enforce no standard", well, advice)


async def _whoami(hub: ClusterClient) -> AsyncGenerator[Finding]:
    reviews = GroupVersionResource("authentication.k8s.io", "v1", "selfsubjectreviews")
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    said = await hub.create(ResourcePath(reviews), asked)
    groups = cast("list[str]", find_at(said, "status", "userInfo", "groups") or [])
    name = str(find_at(said, "status", "userInfo", "username") or "")
    if MASTERS in groups:
        seen = f"you are {name}, of system:masters, whose rights no binding takes away"
        advice = "give people names of their own: docs/guides/users-and-logins.md"
        yield Finding("you", Severity.WARNING, seen, advice)
    else:
        yield Finding("you", Severity.OK, f"you are {name}, with the rights that bindings give")


def examine_files(files: ProductionFiles) -> Iterator[Finding]:
    """Look at who else can read what only the hub may."""
    directory = files.data_dir
    if directory is None:
        return
    patterns = ("**/*.key", "**/kubeconfig", "**/store.db", "**/store.db-wal", "**/audit.log*")
    found = (each for pattern in patterns for each in directory.glob(pattern))
    open_files = [str(each) for each in found if each.is_file() and each.stat().st_mode & 0o077]
    seen, well = "others can read", "only their owner reads keys, store and logs"
    yield _judged("files", sorted(open_files), seen, well, "chmod go= NAME")


def examine_backups(
    files: ProductionFiles, clock: Clock, *, is_shared: bool = False
) -> Iterator[Finding]:
    """Look at whether there is a second copy of everything, and how old it is."""
    if is_shared:
        yield Finding(
            "backups", Severity.OK, "the store is etcd's: it is backed up with etcd's tools"
        )
        return
    where = files.backups
    if where is None:
        return
    newest = max((each.stat().st_mtime for each in where.glob("*.db")), default=None)
    today = time.strftime("%F", time.gmtime(clock.now()))
    source = f" --data-dir {files.data_dir}" if files.data_dir is not None else ""
    advice = f"clusterspace store backup {where}/{today}.db{source}"
    if newest is None:
        seen = f"there is one store, and no backup in {where}"
        yield Finding("backups", Severity.BAD, seen, f"mkdir -p {where}; {advice}")
    elif clock.now() - newest > _DAY:
        seen = f"the newest in {where} is {int((clock.now() - newest) // 3600)} hours old"
        yield Finding("backups", Severity.BAD, seen, advice)
    else:
        yield Finding("backups", Severity.OK, f"the newest in {where} is less than a day old")


async def _versions_and_clock(hub: ClusterClient, clock: Clock) -> AsyncGenerator[Finding]:
    try:
        answer = await hub.connection.ask(ApiRequest("GET", "/version"))
    except ClusterspaceError as error:
        yield Finding("versions", Severity.BAD, f"could not be asked for: {error}")
        return
    if f"clusterspace.{__version__}".encode() in answer.body or b"+clusterspace" not in answer.body:
        yield Finding("versions", Severity.OK, f"hub and this command are {__version__}")
    else:
        advice = "docs/guides/upgrade.md says in which order"
        seen = f"the hub is another version than this command, {__version__}"
        yield Finding("versions", Severity.BAD, seen, advice)
    date = answer.headers.get("date", "")
    skew = abs(parsedate_to_datetime(date).timestamp() - clock.now()) if date else 0.0
    if skew > _MAX_SKEW_SECONDS:
        seen = f"this machine's is {skew:.0f}s apart from the hub's"
        yield Finding("clock", Severity.BAD, seen, "timedatectl set-ntp true")
    else:
        yield Finding("clock", Severity.OK, "this machine's and the hub's agree")


def _certificates(hub: ClusterClient, files: ProductionFiles, clock: Clock) -> Iterator[Finding]:
    """Look at how long the certificates last that are in use: ours, and the hub's."""
    lasting: list[tuple[str, float]] = []
    own = hub.connection.settings.identity.certificate
    content = own.file.read_bytes() if own.file is not None else own.data
    if content:
        lasting.append(("your certificate", expires_at(content)))
    if files.data_dir is not None:
        server, _ = Installation(files.data_dir).server_files
        if server.exists():
            lasting.append(("the hub's certificate", expires_at(server.read_bytes())))
    for whose, ends in lasting:
        days = int((ends - clock.now()) // _DAY)
        if ends - clock.now() > _SOON_SECONDS:
            yield Finding("certificates", Severity.OK, f"{whose} is good for {days} days")
        else:
            advice = "restart the hub: it makes new ones for itself and in its kubeconfig"
            yield Finding("certificates", Severity.BAD, f"{whose} is good for {days} days", advice)
