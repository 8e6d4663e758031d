"""Follows certificate requests: approves agents by the rules, signs what is approved."""

from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.agents import cluster_of_agent
from clusterspace.apiserver.identity.bootstrap_tokens import (
    NAMESPACE,
    BootstrapToken,
    BootstrapTokens,
    secret_name,
    token_id_of,
)
from clusterspace.apiserver.identity.certificates.issuing import (
    SIGNERS,
    Issuer,
    Unfit,
    plan_certificate,
)
from clusterspace.apiserver.identity.certificates.judgement import (
    Approved,
    Denied,
    Requester,
    Undecided,
    Verdict,
    judge_request,
)
from clusterspace.apiserver.identity.certificates.requests import (
    Asked,
    UnreadableRequest,
    read_asked,
    requester_of,
)
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.reading import encoded, find_object, is_being_deleted
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import Edit, edit_own
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, name_of, uid_of, with_value

_log = structlog.get_logger(__name__)

_GROUP: Final = "certificates.k8s.io"
_PLURAL: Final = "certificatesigningrequests"
_CLUSTERS: Final = "cluster.karmada.io"


class CertificateSigner:
    """Settles every request our signers are named in."""

    def __init__(self, hub: HubState, tokens: BootstrapTokens, issuer: Issuer) -> None:
        self._hub = hub
        self._tokens = tokens
        self._issuer = issuer
        self._served = hub.catalog.get_storage(_GROUP, _PLURAL)

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (self._served.prefix(),), self._look)

    async def _look(self, key: str) -> None:
        await self.settle(forms.name_in(key))

    async def settle(self, name: str) -> None:
        """Approve, deny or sign one request, as far as that is ours to do now."""
        request = await find_object(self._hub, _GROUP, _PLURAL, "", name)
        if request is None or not _is_open(request):
            return
        try:
            asked = read_asked(request)
        except UnreadableRequest as error:
            await self._note(request, "Failed", "SignerValidationFailure", str(error))
            return
        if _is_approved(request):
            await self._sign(request, asked)
            return
        match await self._judge(request, asked):
            case Approved():
                await self._note(request, "Approved", "AutoApproved", "the agent of its cluster")
                await self._sign(request, asked)
            case Denied(reason):
                await self._note(request, "Denied", "NotAllowed", reason)
            case Undecided(reason):
                _log.debug("certificate request waits for approval", name=name, reason=reason)

    # -- whose request is it? ------------------------------------------------------------------

    async def _judge(self, request: Object, asked: Asked) -> Verdict:
        """Judge a request; one made with a bootstrap token uses the token up."""
        username, groups = requester_of(request)
        token_id = token_id_of(username)
        if not token_id:
            return judge_request(asked, Requester(cluster_of_agent(username, groups)))
        token = await self._tokens.find(token_id)
        if token is None or not token.cluster:
            return Undecided("the bootstrap token is for no cluster")
        verdict = judge_request(asked, await self._token_bearer(token, request))
        if isinstance(verdict, Approved) and not await self._tokens.spend(token, request):
            return Denied("the bootstrap token was used before, and works once")
        return verdict

    async def _token_bearer(self, token: BootstrapToken, request: Object) -> Requester:
        return Requester(
            cluster=token.cluster,
            has_token=True,
            token_is_spent=token.spent_on_uid not in ("", uid_of(request)),
            token_predates_cluster=await self._predates_cluster(token),
        )

    async def _predates_cluster(self, token: BootstrapToken) -> bool:
        """Whether the cluster came after the token, by the order of writes and not by clocks."""
        store = self._hub.store
        cluster = await store.get(forms.object_key(_CLUSTERS, "clusters", "", token.cluster))
        name = secret_name(token.token_id)
        secret = await store.get(forms.object_key("", "secrets", NAMESPACE, name))
        if cluster is None or secret is None:
            return False
        return secret.create_revision < cluster.create_revision

    # -- what becomes of it --------------------------------------------------------------------

    async def _sign(self, request: Object, asked: Asked) -> None:
        terms = plan_certificate(asked)
        if isinstance(terms, Unfit):
            await self._note(request, "Failed", "SignerValidationFailure", terms.reason)
            return
        certificate = self._issuer.issue(asked, terms, self._hub.clock.now())

        def signed(held: Object) -> Object:
            if uid_of(held) != uid_of(request) or not _is_open(held) or not _is_approved(held):
                return held
            return with_value(held, encoded(certificate), "status", "certificate")

        await self._edit(request, signed)
        _log.info("certificate signed", request=name_of(request), user=terms.common_name)

    async def _note(self, request: Object, kind: str, reason: str, message: str) -> None:
        now = self._hub.timestamp()
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }

        def noted(held: Object) -> Object:
            if uid_of(held) != uid_of(request) or not _is_open(held):
                return held
            return with_value(held, [*_conditions(held), condition], "status", "conditions")

        await self._edit(request, noted)
        _log.info("certificate request settled", request=name_of(request), verdict=kind)

    async def _edit(self, request: Object, edit: Edit) -> None:
        key = self._served.key("", name_of(request))
        await edit_own(self._hub, self._served, key, edit)


def _is_open(request: Object) -> bool:
    """Whether a request of one of our signers has neither been answered nor refused."""
    return (
        find_at(request, "spec", "signerName") in SIGNERS
        and not is_being_deleted(request)
        and not find_at(request, "status", "certificate")
        and not any(is_true(_conditions(request), kind) for kind in ("Denied", "Failed"))
    )


def _is_approved(request: Object) -> bool:
    return is_true(_conditions(request), "Approved")


def _conditions(request: Object) -> list[Object]:
    return cast("list[Object]", find_at(request, "status", "conditions") or [])
