"""Follows certificate requests: approves agents by the rules, signs what is approved.

Requests that are settled, or that nobody settled, go away after a while.
"""

from typing import Final, cast

import structlog

from clusterspace.apis.identities import REGISTRATION_GROUP
from clusterspace.apiserver import forms
from clusterspace.apiserver.access.karmada_agents import installed_cluster, installer_user
from clusterspace.apiserver.housekeeping import remove_expired
from clusterspace.apiserver.identity.agents import (
    Revocations,
    cluster_of_agent,
    is_cluster_name,
)
from clusterspace.apiserver.identity.bootstrap_tokens import (
    NAMESPACE,
    BootstrapTokens,
    secret_name,
    token_id_of,
)
from clusterspace.apiserver.identity.certificates.requests import (
    KARMADA_AGENT_SECONDS,
    SIGNERS,
    ApprovalDecision,
    Approved,
    Asked,
    Denied,
    Issuer,
    Requester,
    Undecided,
    Unfit,
    UnreadableRequest,
    is_installers,
    judge_request,
    plan_certificate,
    read_asked,
    requester_of,
)
from clusterspace.apiserver.identity.following import encoded, find_object, follow
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import Edit, edit_own
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, uid_of, with_value
from clusterspace.kube.times import parse_time

_log = structlog.get_logger(__name__)

_GROUP: Final = "certificates.k8s.io"
_PLURAL: Final = "certificatesigningrequests"
_CLUSTERS: Final = "cluster.karmada.io"

LOOK_SECONDS: Final = 60.0

SETTLED_SECONDS: Final = 3600.0
"""How long a request is kept that was approved, denied or has failed; as Kubernetes."""

PENDING_SECONDS: Final = 24 * 3600.0


class CertificateSigner:
    """Settles every request our signers are named in."""

    def __init__(
        self,
        hub: HubState,
        tokens: BootstrapTokens,
        agents: Revocations,
        issuer: Issuer,
        *,
        accepts_karmadas: bool = False,
    ) -> None:
        self._hub = hub
        self._tokens = tokens
        self._agents = agents
        self._accepts_karmadas = accepts_karmadas
        self.issuer = issuer
        """Whoever signs now: it is replaced with the authority."""
        self._served = hub.catalog.get_storage(_GROUP, _PLURAL)

    async def run(self) -> None:
        """Work until cancelled."""
        prefix = self._served.prefix()
        await follow(self._hub, (prefix,), lambda key: self.settle(forms.name_in(key)))

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
                # Two writes: a crash in between leaves an approved request without a certificate,
                # and the next look, which begins with all requests there are, signs it above.
                await self._note(request, "Approved", "AutoApproved", "the agent of its cluster")
                await self._sign(request, asked)
            case Denied(reason):
                await self._note(request, "Denied", "NotAllowed", reason)
            case Undecided(reason):
                _log.debug("certificate request waits for approval", name=name, reason=reason)

    # -- whose request is it? ------------------------------------------------------------------

    async def _judge(self, request: Object, asked: Asked) -> ApprovalDecision:
        """Judge a request; one made with a bootstrap token uses the token up."""
        username, groups = requester_of(request)
        token_id = token_id_of(username)
        if not token_id:
            cluster = cluster_of_agent(username, groups)
            return judge_request(asked, Requester(cluster, is_karmadas=self._accepts_karmadas))
        token = await self._tokens.find(token_id)
        is_karmadas = self._accepts_karmadas and token is not None and token.is_karmadas
        installs = installed_cluster(name_of(request))
        named = _cluster_named(asked, installs) if is_karmadas else ""
        if token is None or not (token.cluster or named):
            return Undecided("the bootstrap token is for no cluster")
        # A token of Karmada's own is for any cluster, but for none that is there.
        cluster_name = token.cluster or named
        # Which of them came first is a matter of the order of writes, and not of clocks.
        store, secret_key = self._hub.store, secret_name(token_id)
        cluster = await store.get(forms.object_key(_CLUSTERS, "clusters", "", cluster_name))
        secret = await store.get(forms.object_key("", "secrets", NAMESPACE, secret_key))
        bearer = Requester(
            cluster=cluster_name,
            has_token=True,
            token_is_spent=token.spent_on_uid not in ("", uid_of(request)),
            token_predates_cluster=cluster is not None
            and (
                not token.cluster
                or (secret is not None and secret.create_revision < cluster.create_revision)
            ),
            is_karmadas=is_karmadas,
            installs=installs,
        )
        decision = judge_request(asked, bearer)
        if not isinstance(decision, Approved) or (is_karmadas and is_installers(asked)):
            return decision
        if token.cluster and not await self._tokens.spend(token, request):
            return Denied("the bootstrap token was used before, and works once")
        if cluster is None:
            # Whoever got a certificate for this name before, and never made the cluster, would be
            # the agent of the one that is made now. A second ago: this one counts.
            await self._agents.revoke(cluster_name, self._hub.clock.now() - 1.0)
        return decision

    # -- what becomes of it --------------------------------------------------------------------

    async def _sign(self, request: Object, asked: Asked) -> None:
        username, groups = requester_of(request)
        terms = plan_certificate(asked)
        if self._accepts_karmadas and token_id_of(username) and REGISTRATION_GROUP in groups:
            cluster = installed_cluster(name_of(request))
            terms = plan_certificate(
                asked,
                agent_seconds=KARMADA_AGENT_SECONDS,
                installer=installer_user(cluster) if is_cluster_name(cluster) else "",
            )
        if isinstance(terms, Unfit):
            await self._note(request, "Failed", "SignerValidationFailure", terms.reason)
            return
        certificate = self.issuer.issue(asked, terms, self._hub.clock.now())

        def signed(live: Object) -> Object:
            # What was judged was read before; another request may have taken its name since, or
            # somebody may have denied it. The certificate is for the request that was judged.
            if uid_of(live) != uid_of(request) or not _is_open(live) or not _is_approved(live):
                return live
            return with_value(live, encoded(certificate), "status", "certificate")

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

        def noted(live: Object) -> Object:
            if uid_of(live) != uid_of(request) or not _is_open(live):
                return live
            return with_value(live, [*_conditions(live), condition], "status", "conditions")

        await self._edit(request, noted)
        _log.info("certificate request settled", request=name_of(request), verdict=kind)

    async def _edit(self, request: Object, edit: Edit) -> None:
        key = self._served.key("", name_of(request))
        await edit_own(self._hub, self._served, key, edit)


def _cluster_named(asked: Asked, installs: str) -> str:
    """Return the cluster that `karmadactl register` says it registers; empty when it says none."""
    if is_installers(asked):
        return installs if is_cluster_name(installs) else ""
    user = asked.common_names[0] if len(asked.common_names) == 1 else ""
    return cluster_of_agent(user, asked.organizations)


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


async def expire_requests(hub: HubState) -> None:
    """Look at every request now and then, until cancelled."""
    while True:
        await forget_old_requests(hub)
        await hub.clock.sleep(LOOK_SECONDS)


async def forget_old_requests(hub: HubState) -> int:
    """Remove the requests that are past their time; return how many went."""
    now = hub.clock.now()
    return len(await remove_expired(hub, _GROUP, _PLURAL, lambda each: is_past(each, now)))


def is_past(request: Object, now: float) -> bool:
    """Whether a request has been there long enough."""
    created = str(find_at(request, "metadata", "creationTimestamp"))
    times = [
        str(each["lastUpdateTime"]) for each in _conditions(request) if each.get("lastUpdateTime")
    ]
    if not times:
        return parse_time(created) + PENDING_SECONDS <= now
    return max(parse_time(each) for each in times) + SETTLED_SECONDS <= now
