"""Nobody asks for the group that may do everything."""

import pytest
from tests.unit.apiserver.identity.certificates.requested import pem, signing_request
from tests.unit.apiserver.identity.subjects import OPERATOR, MemoryHub

from clusterspace.apiserver.admission.builtin_kinds import CertificateSubjects
from clusterspace.apiserver.identity.certificates.requests import CLIENT_SIGNER
from clusterspace.apiserver.state import Admission
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import Object


async def admitted(request: Object) -> Object:
    hub = MemoryHub()
    served = hub.state.catalog.get_storage("certificates.k8s.io", "certificatesigningrequests")
    return await CertificateSubjects().admit(hub.state, Admission(served, OPERATOR, request))


async def test_a_request_for_masters_is_refused_in_kubernetes_words():
    request = signing_request(
        pem(names=("jane",), groups=("system:masters",)), "jane", signerName=CLIENT_SIGNER
    )

    with pytest.raises(Forbidden) as refusal:
        await admitted(request)

    assert refusal.value.message == (
        'certificatesigningrequests.certificates.k8s.io "jane" is forbidden: use of '
        "kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )


async def test_other_requests_and_other_signers_pass():
    plain = signing_request(pem(), "west")
    foreign = signing_request(pem(groups=("system:masters",)), "x", signerName="example.com/x")

    assert await admitted(plain) is plain
    assert await admitted(foreign) is foreign


async def test_what_cannot_be_read_asks_for_no_group():
    unreadable = signing_request(b"", "west", signerName=CLIENT_SIGNER)

    assert await admitted(unreadable) is unreadable
