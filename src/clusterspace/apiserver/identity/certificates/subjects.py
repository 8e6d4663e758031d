"""Whom nobody may ask to become: administrators, and the parts of the control plane."""

from clusterspace.apis.parts import PART_USER_PREFIX
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.certificates.requests import (
    SIGNERS,
    UnreadableRequest,
    read_asked,
)
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, name_of


class CertificateSubjects:
    """Refuses requests for such certificates; an operator must not even see one."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Look at new certificate requests; let everything else pass."""
        new = admission.new
        if not admission.is_create or not admission.is_of(
            "certificates.k8s.io", "CertificateSigningRequest"
        ):
            return new
        signer = find_at(new, "spec", "signerName")
        if signer not in SIGNERS:
            return new
        try:
            asked = read_asked(new)
        except UnreadableRequest:
            return new  # nothing can be signed for it, and the signer says why
        why = ""
        if MASTERS in asked.organizations:
            why = f"use of {signer} signer with {MASTERS} group is not allowed"
        elif any(each.startswith(PART_USER_PREFIX) for each in asked.common_names):
            why = f"use of {signer} signer for users {PART_USER_PREFIX}* is not allowed"
        if why:
            raise statuses.forbidden(admission.served.info.group_resource, name_of(new), why)
        return new
