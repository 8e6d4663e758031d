"""May this agent have that certificate? A pure decision, and the strictest one in the hub.

An agent gets a certificate for its own name, in the agents' group, for logging in, for a day: by a
token made for that cluster, or by the certificate it has now. Whoever else asks waits for an
operator, and whoever asks for anything else is told no.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apis.agents import AGENT_SIGNER, AGENTS
from clusterspace.apiserver.identity.agents import agent_user
from clusterspace.apiserver.identity.certificates.requests import CLIENT_SIGNER, Asked

AGENT_SECONDS: Final = 24 * 3600
"""How long an agent's certificate lives at most."""

CLIENT_AUTH: Final = "client auth"
CLIENT_USAGES: Final = frozenset({CLIENT_AUTH, "digital signature", "key encipherment"})
"""What a certificate for logging in may be used for."""


@dataclass(frozen=True, slots=True)
class Requester:
    """What we know, from our own records, of whoever made a request."""

    cluster: str = ""
    """The cluster whose agent this is or is to become; empty for everybody else."""
    has_token: bool = False
    """Whether it came with a bootstrap token and not with an agent's certificate."""
    token_is_spent: bool = False
    """Whether the token was used on another request before."""
    token_predates_cluster: bool = False
    """Whether the cluster joined after the token was made: it has an agent already."""


@dataclass(frozen=True, slots=True)
class Approved:
    """The request is in order."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The request asks for what its maker may not have."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not ours to decide: somebody with the right to approve must look."""

    reason: str


Verdict: TypeAlias = Approved | Denied | Undecided


def judge_request(asked: Asked, requester: Requester) -> Verdict:
    """Decide about a request."""
    if not requester.cluster:
        return Undecided("the requester is not the agent of a cluster")
    reason = _wrong_about(asked, requester.cluster)
    if reason:
        return Denied(reason)
    if requester.has_token and requester.token_is_spent:
        return Denied("the bootstrap token was used before, and works once")
    if requester.has_token and requester.token_predates_cluster:
        return Undecided("the cluster has an agent already, and the token is older than it")
    return Approved()


def _wrong_about(asked: Asked, cluster: str) -> str:
    """Return what an agent of this cluster may not ask for; empty when all is in order."""
    if asked.signer not in (AGENT_SIGNER, CLIENT_SIGNER):
        return f"the signer {asked.signer} does not sign for agents"
    if asked.common_names != (agent_user(cluster),):
        return f"the common name is not {agent_user(cluster)}"
    if asked.organizations != (AGENTS,):
        return f"the organization is not {AGENTS} alone"
    if asked.has_other_names:
        return "the subject says more than a common name and an organization"
    if asked.has_attributes:
        return "the request asks for extensions, and an agent needs none"
    return usage_problem(asked.usages) or _life_problem(asked.seconds)


def usage_problem(usages: frozenset[str]) -> str:
    """Return what is wrong with the usages of a certificate for logging in; empty when nothing."""
    others = sorted(usages - CLIENT_USAGES)
    if others:
        return f"invalid usage for client certificate: {others[0]}"
    if CLIENT_AUTH not in usages:
        return f"usage {CLIENT_AUTH!r} is missing"
    return ""


def _life_problem(seconds: int | None) -> str:
    if seconds is not None and seconds > AGENT_SECONDS:
        return f"an agent's certificate lives {AGENT_SECONDS} seconds at most"
    return ""
