"""All verbs and all tasks of this package, put together for the process that runs them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.apiserver.authenticators import TokenTable
from clusterspace.apiserver.certificates import KeyPair
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.authorize import Authorizer
from clusterspace.apiserver.identity.authenticator import HubAuthenticator
from clusterspace.apiserver.identity.bootstrap_tokens import BootstrapTokens
from clusterspace.apiserver.identity.certificates.expiry import expire_requests
from clusterspace.apiserver.identity.certificates.issuing import Issuer
from clusterspace.apiserver.identity.certificates.signer import CertificateSigner
from clusterspace.apiserver.identity.certificates.verbs import CertificateRequestVerbs
from clusterspace.apiserver.identity.client_authority import ClientAuthority
from clusterspace.apiserver.identity.cluster_info import ClusterInfo
from clusterspace.apiserver.identity.logins import BearerTokens, StaticTokens
from clusterspace.apiserver.identity.revocations import Revocations
from clusterspace.apiserver.identity.service_account_tokens import ServiceAccountTokens
from clusterspace.apiserver.identity.service_accounts import NamespaceAccounts
from clusterspace.apiserver.identity.signing_keys import SigningKey
from clusterspace.apiserver.identity.token_expiry import expire_tokens
from clusterspace.apiserver.identity.token_requests import TokenRequestVerb
from clusterspace.apiserver.identity.token_reviews import TokenReviewVerb
from clusterspace.apiserver.identity.token_secrets import TokenSecrets
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.controllers.background import Tasks

Verbs: TypeAlias = Mapping[tuple[str, str], Callable[[ResourceRequest], Awaitable[Response | None]]]
"""`group/resource` or `group/resource/part`, and verb, to what answers it."""


_REQUESTS = "certificates.k8s.io/certificatesigningrequests"


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one installation: its authority, and the key behind its tokens."""

    authority: KeyPair
    tokens: SigningKey


class Identity:
    """Everything about credentials that one hub needs."""

    def __init__(self, hub: HubState, keys: Keys, static_tokens: TokenTable) -> None:
        self._hub = hub
        self._keys = keys
        self._accounts = ServiceAccountTokens(hub, keys.tokens)
        self._bootstrap = BootstrapTokens(hub)
        self._revocations = Revocations(hub)
        self._bearers = BearerTokens((self._accounts, self._bootstrap, StaticTokens(static_tokens)))

    def authenticator(self) -> HubAuthenticator:
        """Return who finds out who asks."""
        return HubAuthenticator(self._hub, self._bearers, self._revocations)

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

    def tasks(self, server: str) -> Tasks:
        """Return what goes on in the background; `server` is the URL newcomers reach us at."""
        hub, authority = self._hub, self._keys.authority.certificate
        issuer = Issuer(self._keys.authority)
        return {
            "service accounts": NamespaceAccounts(hub, authority).run,
            "token secrets": TokenSecrets(hub, self._accounts, authority).run,
            "certificate requests": CertificateSigner(hub, self._bootstrap, issuer).run,
            "certificate request expiry": lambda: expire_requests(hub),
            "bootstrap token expiry": lambda: expire_tokens(hub),
            "client authority": ClientAuthority(hub, authority).run,
            "cluster info": ClusterInfo(hub, server, authority).run,
            "revocations": self._revocations.run,
        }
