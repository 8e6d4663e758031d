"""Policies: what their authors left out is filled in, what cannot be meant is refused.

A new propagation policy is held from its first moment: between its creation and the first look of
a controller it could otherwise be deleted without anybody taking its marks away.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apis import policies, stamps
from clusterspace.apis.override_rules import override_causes
from clusterspace.apis.policy_rules import (
    completed_policy,
    policy_causes,
    with_selector_namespaces,
)
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, metadata_of, name_of, with_metadata

_FINALIZERS: Final[Mapping[str, str]] = {
    policies.PROPAGATION_POLICY: stamps.POLICY_FINALIZER,
    policies.CLUSTER_PROPAGATION_POLICY: stamps.CLUSTER_POLICY_FINALIZER,
}
_MISSHAPEN: Final = "FieldValueTypeInvalid"
_OVERRIDES: Final = frozenset({policies.OVERRIDE_POLICY, policies.CLUSTER_OVERRIDE_POLICY})


class PolicyRules:
    """Completes and checks policies of all four kinds."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Complete and check a policy; other objects pass."""
        info = admission.served.info
        is_ours = info.group == policies.GROUP and info.kind in {*_FINALIZERS, *_OVERRIDES}
        if not is_ours or admission.subresource:
            return admission.new
        return await admission.run(lambda: _checked(admission))


def _checked(admission: Admission) -> Object:
    # The schema is asked once more when all plug-ins are done. But what they complete and
    # check must have the shape they know: a list where they look for a map is no 500.
    info = admission.served.info
    misshapen = [
        each
        for each in admission.served.rules.validate_create(admission.new)
        if each.reason == _MISSHAPEN
    ]
    if misshapen:
        raise statuses.invalid(info.group_kind, name_of(admission.new), misshapen)
    if info.kind in _FINALIZERS:
        policy = _completed(admission, _FINALIZERS[info.kind])
        found = policy_causes(policy, admission.old)
    else:
        policy = with_selector_namespaces(admission.new)
        found = override_causes(policy)
    if found and not _is_leaving(admission):
        raise statuses.invalid(info.group_kind, name_of(policy), found)
    return policy


def _completed(admission: Admission, finalizer: str) -> Object:
    policy = completed_policy(admission.new)
    held: list[str] = metadata_of(policy).get("finalizers") or []
    if not admission.is_create or finalizer in held:
        return policy
    return with_metadata(policy, finalizers=[*held, finalizer])


def _is_leaving(admission: Admission) -> bool:
    """Whether the write is one of those that let a policy go: no rule may keep it from that."""
    return bool(metadata_of(admission.old or {}).get("deletionTimestamp"))
