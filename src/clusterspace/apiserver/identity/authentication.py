"""Everything about credentials that one hub needs: who asks, the verbs, the tasks."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.guards import Authorizer
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.users import ANONYMOUS, User, login_of
from clusterspace.apiserver.identity.agents import Revocations, cluster_of_agent
from clusterspace.apiserver.identity.authority import Authorities, TrustBundle, is_vouched_for
from clusterspace.apiserver.identity.bearer_tokens import (
    API_AUDIENCE,
    BearerTokens,
    RefusedToken,
    StaticTokens,
    TokenReviewVerb,
)
from clusterspace.apiserver.identity.bootstrap_tokens import BootstrapTokens, expire_tokens
from clusterspace.apiserver.identity.certificates.requests import Issuer
from clusterspace.apiserver.identity.certificates.signer import CertificateSigner, expire_requests
from clusterspace.apiserver.identity.certificates.verbs import CertificateRequestVerbs
from clusterspace.apiserver.identity.config_maps import (
    ClientAuthority,
    ClusterInfo,
    TokenTracking,
)
from clusterspace.apiserver.identity.credentials_in_use import (
    CredentialsInUse,
    publish_forever,
)
from clusterspace.apiserver.identity.oidc import OidcTokens
from clusterspace.apiserver.identity.revocations import RevocationCache
from clusterspace.apiserver.identity.service_account_tokens import (
    IssuerDocuments,
    ServiceAccountTokens,
    TokenKeys,
    TokenRequestVerb,
)
from clusterspace.apiserver.identity.service_accounts import NamespaceAccounts, TokenSecrets
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.errors import AuthorityDropped, Unauthorized
from clusterspace.kube import statuses

Verbs: TypeAlias = Mapping[tuple[str, str], Callable[[ResourceRequest], Awaitable[Response | None]]]
"""`group/resource` or `group/resource/subresource`, and verb, to what answers it."""

_REQUESTS: Final = "certificates.k8s.io/certificatesigningrequests"


class HubAuthenticator:
    """Finds out who asks: by client certificate, then by bearer token; with neither, anonymous.

    A credential that is given and wrong is refused, never passed over.
    """

    def __init__(
        self,
        hub: HubState,
        tokens: BearerTokens,
        revoked: RevocationCache,
        agents: Revocations,
        authorities: Callable[[], Authorities],
        in_use: CredentialsInUse,
    ) -> None:
        self._hub = hub
        self._tokens = tokens
        self._revoked = revoked
        self._agents = agents
        self._authorities = authorities
        self._in_use = in_use

    async def authenticate(self, request: Request) -> User:
        """Return who asks; Unauthorized when the credential does not count."""
        if request.peer_certificate is not None:
            # Whose certificate it is does not change on a connection, and is read once. Whether
            # it still counts is asked with every request: it may have been revoked or have ended.
            now, certificate = self._hub.clock.now(), request.peer_certificate
            login = login_of(request, certificate, now)
            # TLS asked who signed it when the connection was opened, perhaps long ago.
            authorities = self._authorities()
            if login.authority not in authorities.key_ids and (
                login.authority or not is_vouched_for(certificate, authorities.bundle)
            ):
                raise AuthorityDropped
            if self._revoked.current.covers(login):
                raise statuses.unauthorized()
            self._in_use.note(login.authority, login.user.name, now)
            cluster = cluster_of_agent(login.user.name, login.user.groups)
            if cluster and await self._agents.covers(cluster, login.issued):
                raise statuses.unauthorized()
            return login.user
        header = request.headers.get("authorization")
        if not header:
            return ANONYMOUS
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise statuses.unauthorized()
        try:
            login = await self._tokens.check(token.strip(), (API_AUDIENCE,))
        except RefusedToken as refusal:
            raise Unauthorized("Unauthorized") from refusal
        if login is None:
            raise statuses.unauthorized()
        # A spent token reads one path and no more.
        if login.only_path and (request.method, request.path) != ("GET", login.only_path):
            raise statuses.unauthorized()
        return login.user


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one installation: its authorities, and the keys behind its tokens."""

    authorities: Authorities
    tokens: TokenKeys

    @property
    def are_rolling(self) -> bool:
        """Whether one of them takes over from another."""
        return bool(self.authorities.others or self.tokens.others)


class Authentication:
    """Everything about credentials, for the process that runs it."""

    def __init__(
        self,
        hub: HubState,
        keys: Keys,
        static_tokens: StaticTokens,
        issuers: OidcTokens | None = None,
        *,
        accepts_karmada_agents: bool = False,
    ) -> None:
        self._hub = hub
        self._trust = TrustBundle(keys.authorities.bundle)
        self._in_use = CredentialsInUse()
        self._accounts = ServiceAccountTokens(hub, keys.tokens, self._in_use)
        self._bootstrap = BootstrapTokens(hub)
        self._agents = Revocations(hub)
        self.revoked = RevocationCache(hub)
        """Whose credentials are refused; load it before the first request."""
        # Issuers last: theirs are the only tokens for which somebody else may have to be asked.
        kinds = (self._accounts, self._bootstrap, static_tokens)
        kinds = (*kinds, *(() if issuers is None else (issuers,)))
        self._bearers = BearerTokens(kinds, lambda user: self.revoked.current.denies(user))
        issuer = Issuer(keys.authorities.signing.pair)
        self._signer = CertificateSigner(
            hub, self._bootstrap, self._agents, issuer, accepts_karmadas=accepts_karmada_agents
        )
        self.documents = IssuerDocuments(self._accounts)
        """What others read to check tokens of ours."""
        self.use(keys)

    def use(self, keys: Keys) -> None:
        """Sign with these keys and believe what they signed, from now on; publish whom to trust."""
        self._authorities = keys.authorities
        self._signer.issuer = Issuer(keys.authorities.signing.pair)
        self._accounts.use(keys.tokens)
        self._in_use.roll(is_rolling=keys.are_rolling)
        self._trust.replace(keys.authorities.bundle)

    def authenticator(self, *, takes_notes: bool = True) -> HubAuthenticator:
        """Return who finds out who asks; for streams that were opened before, without notes."""
        return HubAuthenticator(
            self._hub,
            self._bearers,
            self.revoked,
            self._agents,
            lambda: self._authorities,
            self._in_use if takes_notes else CredentialsInUse(),
        )

    def verbs(self, authorizer: Authorizer) -> Verbs:
        """Return the verbs that issue and review credentials."""
        requests = CertificateRequestVerbs(authorizer)
        return {
            ("/serviceaccounts/token", "create"): TokenRequestVerb(self._accounts),
            ("authentication.k8s.io/tokenreviews", "create"): TokenReviewVerb(self._bearers),
            (_REQUESTS, "get"): requests.get,
            (_REQUESTS, "list"): requests.list,
            (_REQUESTS, "watch"): requests.watch,
            (f"{_REQUESTS}/approval", "update"): requests.update_approval,
            (f"{_REQUESTS}/approval", "patch"): requests.patch_approval,
            (f"{_REQUESTS}/status", "update"): requests.update_status,
            (f"{_REQUESTS}/status", "patch"): requests.patch_status,
        }

    def own_tasks(self, server: str) -> Tasks:
        """Return the background tasks of every server, however many share a store."""
        notes = f"hub-{hashlib.sha256(server.encode()).hexdigest()[:8]}"
        return {
            "credentials in use": lambda: publish_forever(self._hub, self._in_use, notes),
            # Whoever sees a cluster go enters its agent, once more or for the first time: a server
            # that takes over from another would not know what happened in between.
            "agents that left": self._agents.run,
            "revocations": self.revoked.run,
        }

    def tasks(self, server: str) -> Tasks:
        """Return the background tasks of which one server on a store is enough.

        `server` is the URL newcomers reach us at.
        """
        hub, trust = self._hub, self._trust
        return {
            "service accounts": NamespaceAccounts(hub, trust).run,
            "token secrets": TokenSecrets(hub, self._accounts, trust).run,
            "certificate requests": self._signer.run,
            "certificate request expiry": lambda: expire_requests(hub),
            "bootstrap token expiry": lambda: expire_tokens(hub),
            "client authority": ClientAuthority(hub, trust).run,
            "token tracking": TokenTracking(hub).run,
            "cluster info": ClusterInfo(hub, server, trust).run,
        }
