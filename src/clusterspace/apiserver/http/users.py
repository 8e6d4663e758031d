"""Who is asking: users, whom a certificate or an act-as header names, and who they are elsewhere.

    Impersonate-User: jane            may the caller `impersonate` users/jane?
    Impersonate-Group: devs           … groups/devs? (may come several times)
    Impersonate-Uid: 4711             … uids/4711?
    Impersonate-Extra-Scopes: read    … userextras/scopes/read? (may come several times)

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation

A member believes whatever name a request comes with: the impersonator's credential may act as
anybody. So the names must be such that nobody there, and nobody here, could have been given them
for something else:

    jane                            jane, with her groups
    system:serviceaccount:NS:NAME   clusterspace:serviceaccount:NS:NAME
                                    in clusterspace:serviceaccounts, clusterspace:serviceaccounts:NS
    system:anonymous, system:*      nobody: refused
    groups system:*                 left out; `system:masters` travels where the operator says so
    clusterspace:*                  refused: these names are made here, and given to nobody

An account `shop/robot` of the hub is not the account `shop/robot` of a member, whoever made that
one. Karmada's guides bind hub accounts on members under their plain names; a gateway can be told to
keep that for single members, where hub and member are one tenant's anyway.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from cryptography import x509
from cryptography.x509.oid import NameOID

from clusterspace.apiserver.http.messages import Headers, Request
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.client import settings as client_settings
from clusterspace.client.requests import Headers as SentHeaders
from clusterspace.errors import BadRequest, Forbidden, Unauthorized
from clusterspace.kube import statuses
from clusterspace.kube.names import dns1123_label_problems, dns1123_subdomain_problems

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"

OURS: Final = "clusterspace:"
"""What the names begin with that are made here."""
ACCOUNTS: Final = f"{OURS}serviceaccounts"
"""The group of every hub ServiceAccount on members; with `:NS` behind it, of those of one space."""

_SYSTEM: Final = "system:"
_ACCOUNT: Final = f"{_SYSTEM}serviceaccount:"
_ACCOUNT_GROUP: Final = f"{_SYSTEM}serviceaccounts"
_EVERYBODY: Final = (AUTHENTICATED, UNAUTHENTICATED)

BACKDATED_SECONDS: Final = 300.0
"""Clocks differ a little between machines. So that a new certificate counts everywhere at once, it
says that it begins this long before it was issued."""

_MEMORY: Final = "certificate login"
"""Where a connection remembers whom its certificate names."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with groups, as Kubernetes knows them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class CertificateLogin:
    """Whom a client certificate names, and the moments between which it counts."""

    user: User
    starts: float
    ends: float
    fingerprint: str = ""
    """SHA-256 of the certificate, in hex."""
    serial: int = 0
    authority: str = ""
    """Which key signed it, as the certificate itself says (RFC 5280, 4.2.1.1), in hex."""

    @property
    def issued(self) -> float:
        """When it was issued, if it is one of ours."""
        return self.starts + BACKDATED_SECONDS


def read_login(certificate_der: bytes) -> CertificateLogin:
    """Read a certificate whose signature TLS has checked; Unauthorized when it names nobody.

    The user is the common name, the groups are the organisations, as Kubernetes has it.
    """
    try:
        certificate = x509.load_der_x509_certificate(certificate_der)
    except ValueError as error:
        raise Unauthorized("Unauthorized") from error
    names = _texts(certificate.subject, NameOID.COMMON_NAME)
    if not names or not names[0]:
        raise statuses.unauthorized()
    groups = _texts(certificate.subject, NameOID.ORGANIZATION_NAME)
    # Names the certificate in use, so that audit can tell two of the same user apart.
    digest = hashlib.sha256(certificate_der).hexdigest()
    extra = {"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)}
    return CertificateLogin(
        user=User(names[0], (*groups, AUTHENTICATED), extra=extra),
        starts=certificate.not_valid_before_utc.timestamp(),
        ends=certificate.not_valid_after_utc.timestamp(),
        fingerprint=digest,
        serial=certificate.serial_number,
        authority=_authority_of(certificate),
    )


def _authority_of(certificate: x509.Certificate) -> str:
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return ""
    return (found.value.key_identifier or b"").hex()


def find_login(request: Request) -> CertificateLogin | None:
    """Return the login that was read on a request's connection; None when none was."""
    return request.connection_memory.get(_MEMORY)


def login_of(request: Request, certificate_der: bytes, now: float) -> CertificateLogin:
    """Return the login of a request's certificate, read once for each connection.

    TLS looked at its end when the connection was opened; a watch keeps one open for days.
    """
    login: CertificateLogin | None = request.connection_memory.get(_MEMORY)
    if login is None:
        login = request.connection_memory[_MEMORY] = read_login(certificate_der)
    if now >= login.ends:
        raise statuses.unauthorized()
    return login


def _texts(subject: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in subject.get_attributes_for_oid(oid))


@dataclass(frozen=True, slots=True)
class MemberIdentities:
    """Settings for how users of the hub are named on members; see the table above."""

    passes_masters: bool = False
    """Whether `system:masters` of the hub keep that group on every member."""
    plain_accounts: frozenset[str] = frozenset()
    """The members at which a hub ServiceAccount is the ServiceAccount of the same name."""

    def headers(self, user: User, cluster: str) -> SentHeaders:
        """Return the headers that make a request this user's own at a member.

        Neither UID nor extra: the role that Karmada gives impersonators on members covers users,
        groups and accounts, and a member refuses a request that claims more. Forbidden for who
        stays here.
        """
        _require_plain(user)
        own = tuple(
            group
            for group in user.groups
            if (group == MASTERS and self.passes_masters)
            or (group and not group.startswith((_SYSTEM, OURS)))
        )
        if user.name.startswith(_ACCOUNT):
            namespace, _, name = user.name.removeprefix(_ACCOUNT).partition(":")
            if not namespace or not name or ":" in name:
                raise _stays(user, "its name is not that of a ServiceAccount")
            if cluster in self.plain_accounts:
                groups = (_ACCOUNT_GROUP, f"{_ACCOUNT_GROUP}:{namespace}", *own)
                return _sent_as(user.name, groups=groups)
            groups = (ACCOUNTS, f"{ACCOUNTS}:{namespace}", *own)
            return _sent_as(f"{OURS}serviceaccount:{namespace}:{name}", groups=groups)
        if user.name == ANONYMOUS.name or UNAUTHENTICATED in user.groups:
            raise _stays(user, "whoever is not known here is nobody there")
        if user.name.startswith(OURS):
            raise _stays(user, f"names that begin with {OURS!r} are made by the gateway")
        # Who may do everything anyway gains nothing by a name: Karmada's administrator is called
        # system:admin.
        if user.name.startswith(_SYSTEM) and MASTERS not in own:
            why = f"names that begin with {_SYSTEM!r} mean something else in every cluster"
            raise _stays(user, why)
        return _sent_as(user.name, groups=own)


def _sent_as(
    name: str, uid: str = "", groups: tuple[str, ...] = (), extra: tuple[tuple[str, str], ...] = ()
) -> SentHeaders:
    return client_settings.Impersonation(name, uid, groups, extra).headers()


def act_at_hub(user: User) -> SentHeaders:
    """Return the headers that make a request this user's own at the hub, which knows them fully."""
    return hub_impersonation(user).headers()


def hub_impersonation(user: User) -> client_settings.Impersonation:
    """Return whom to act as at the hub for this user; Forbidden for a name that means another."""
    _require_plain(user)
    groups = tuple(group for group in user.groups if group and group not in _EVERYBODY)
    extra = tuple(
        (quote(key, safe=""), value) for key, values in user.extra.items() for value in values
    )
    return client_settings.Impersonation(user.name, user.uid, groups, extra)


def read_members(given: Iterable[str]) -> frozenset[str]:
    """Return the members named by settings, each of which may name several.

    >>> sorted(read_members(["east,west", " north "]))
    ['east', 'north', 'west']
    """
    return frozenset(name for text in given for each in text.split(",") if (name := each.strip()))


def _require_plain(user: User) -> None:
    """Refuse a name that the far end would read as another one.

    Servers cut blanks off headers, and " system:masters" would be system:masters.
    """
    for claim in (user.name, user.uid, *user.groups):
        if claim != claim.strip() or not claim.isprintable():
            raise Forbidden(f"the user {user.name!r} cannot be passed on to another cluster")
    if not user.name:
        raise Forbidden("a user without a name cannot be passed on to another cluster")


def _stays(user: User, why: str) -> Forbidden:
    return Forbidden(f"the user {user.name!r} is not passed on to member clusters: {why}")


# -- impersonation ---------------------------------------------------------------------------------

_FAMILY: Final = "impersonate"
_CONNECTION: Final = "connection"
_WATCHED: Final = (_FAMILY, _CONNECTION)
_USER: Final = "impersonate-user"
_GROUP: Final = "impersonate-group"
_UID: Final = "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"

_AUTHENTICATION: Final = "authentication.k8s.io"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user a request wants to act as, read from its Impersonate headers."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def checks(self) -> Iterator[RequestInfo]:
        """Yield what the caller must be allowed, one request per value."""
        account = read_account(self.user)
        if account is not None:
            yield _check("", "serviceaccounts", account[1], namespace=account[0])
        else:
            yield _check("", "users", self.user)
        for group in self.groups:
            yield _check("", "groups", group)
        for key, values in self.extra.items():
            for value in values:
                yield _check(_AUTHENTICATION, "userextras", value, subresource=key)
        if self.uid:
            yield _check(_AUTHENTICATION, "uids", self.uid)

    def become(self) -> User:
        """Return the user acted as, with the groups that come with being one."""
        groups, account = self.groups, read_account(self.user)
        if account is not None and not groups:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
        if self.user == ANONYMOUS.name:
            groups = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
        elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, AUTHENTICATED)
        return User(self.user, groups, self.uid, self.extra)


def _check(
    group: str, resource: str, name: str, *, namespace: str = "", subresource: str = ""
) -> RequestInfo:
    return RequestInfo(
        method="",
        path="",
        verb="impersonate",
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def read_account(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account a user name stands for, or None."""
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    if not user.startswith(_ACCOUNT) or ":" in name:
        return None
    if dns1123_label_problems(namespace) or dns1123_subdomain_problems(name):
        return None
    return namespace, name


def is_of_family(name: str) -> bool:
    """Whether a header could be taken for one of these, by us or by anybody behind us."""
    return name.startswith(_FAMILY)


def read_impersonation(headers: Headers) -> Impersonation | None:
    """Return the impersonation that the headers ask for, or None when they ask for none."""
    pairs = [pair for pair in headers.pairs if pair[0].startswith(_WATCHED)]
    if not pairs:
        return None  # almost every request
    if any(name == _CONNECTION and _FAMILY in value.lower() for name, value in pairs):
        # It would ask proxies to drop who is acted as, and to pass the rest on.
        raise BadRequest("impersonation headers cannot be connection options")
    pairs = [(name, value) for name, value in pairs if is_of_family(name)]
    if not pairs:
        return None
    for name, _ in pairs:
        if name not in (_USER, _GROUP, _UID) and not name.startswith(_EXTRA):
            raise BadRequest(f"the header {name!r} is not one that impersonation knows")
    user, uid = _only(headers, _USER), _only(headers, _UID)
    if not user:
        raise BadRequest("impersonation was requested without impersonating a user")
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name.startswith(_EXTRA):
            key = _read_extra_key(name.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return Impersonation(user, tuple(headers.get_all(_GROUP)), uid, extra)


def _only(headers: Headers, name: str) -> str:
    values = headers.get_all(name)
    if len(values) > 1:
        raise BadRequest(f"the header {name!r} must be given once")
    return values[0] if values else ""


def _read_extra_key(text: str) -> str:
    try:
        key = unquote_to_bytes(text).decode("utf-8").lower()
    except UnicodeDecodeError as error:
        raise BadRequest("the key of an Impersonate-Extra header is not UTF-8") from error
    if not key or not key.isprintable():
        raise BadRequest("the key of an Impersonate-Extra header is empty or does not print")
    return key
