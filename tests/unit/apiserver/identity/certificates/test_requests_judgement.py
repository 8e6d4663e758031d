"""May this agent have that certificate?"""

from dataclasses import replace

import pytest
from tests.unit.apiserver.identity.certificates.requested import agent_request

from clusterspace.apiserver.identity.certificates.requests import (
    CLIENT_SIGNER,
    Approved,
    Denied,
    Requester,
    Undecided,
    judge_request,
    read_asked,
)

ASKED = read_asked(agent_request(expirationSeconds=3600))
AGENT = Requester("west")
NEWCOMER = Requester("west", has_token=True)


@pytest.mark.parametrize("requester", [AGENT, NEWCOMER])
@pytest.mark.parametrize("signer", [ASKED.signer, CLIENT_SIGNER])
@pytest.mark.parametrize("seconds", [None, 600, 86_400])
def test_an_agent_may_have_its_own_certificate(
    requester: Requester, signer: str, seconds: int | None
):
    asked = replace(ASKED, signer=signer, seconds=seconds)

    assert judge_request(asked, requester) == Approved()


def test_somebody_without_a_cluster_waits_for_an_operator():
    assert isinstance(judge_request(ASKED, Requester()), Undecided)


def test_a_spent_token_gets_nothing_more():
    verdict = judge_request(ASKED, replace(NEWCOMER, token_is_spent=True))

    assert verdict == Denied("the bootstrap token was used before, and works once")


def test_a_token_older_than_the_cluster_waits_for_an_operator():
    verdict = judge_request(ASKED, replace(NEWCOMER, token_predates_cluster=True))

    assert isinstance(verdict, Undecided)


@pytest.mark.parametrize("requester", [AGENT, NEWCOMER])
def test_an_agent_may_not_ask_other_signers(requester: Requester):
    asked = replace(ASKED, signer="kubernetes.io/kubelet-serving")

    verdict = judge_request(asked, requester)

    assert verdict == Denied("the signer kubernetes.io/kubelet-serving does not sign for agents")


def test_what_is_wrong_is_said():
    verdict = judge_request(ASKED, Requester("east"))

    assert verdict == Denied("the common name is not system:karmada:agent:east")
