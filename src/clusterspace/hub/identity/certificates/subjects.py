"""Whom nobody may ask to become: the group that may do everything is not for certificates."""

from clusterspace.hub.admissions import Admission
from clusterspace.hub.identity.certificates.issuing import SIGNERS
from clusterspace.hub.identity.certificates.requests import groups_asked
from clusterspace.hub.state import HubState
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.serving.users import MASTERS


class CertificateSubjects:
    """Refuses certificate requests for `system:masters`; an operator must not even see one."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Look at new certificate requests; let everything else pass."""
        new = admission.new
        if not admission.is_create or not admission.is_of(
            "certificates.k8s.io", "CertificateSigningRequest"
        ):
            return new
        signer = find_at(new, "spec", "signerName")
        if signer in SIGNERS and MASTERS in groups_asked(new):
            why = f"use of {signer} signer with {MASTERS} group is not allowed"
            raise statuses.forbidden(admission.served.info.group_resource, name_of(new), why)
        return new
