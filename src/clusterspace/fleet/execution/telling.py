"""Events about what became of manifests on one member: on the Work, and on the template for users.

What goes well is in the statuses. Events are for what people should hear of: trouble, its end, and
what was put back.
"""

from collections.abc import Sequence
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.works import APPLIED
from clusterspace.controllers.events import EventRecorder
from clusterspace.fleet.execution.report import Finding
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, namespace_of

SYNC_FAILED: Final = "SyncFailed"
SYNC_SUCCEED: Final = "SyncSucceed"
DRIFT_REPAIRED: Final = "DriftRepaired"


class Teller:
    """Records Events for one member."""

    def __init__(
        self, events: EventRecorder, cluster_name: str, *, tells_templates: bool = True
    ) -> None:
        self._events = events
        self._cluster = cluster_name
        self._tells_templates = tells_templates

    def tell_findings(self, work: Object, findings: Sequence[Finding]) -> None:
        """Tell of manifests that have come to be in trouble, or out of it."""
        condition = find_condition(find_at(work, "status", "conditions"), APPLIED) or {}
        was_failing = condition.get("status", TRUE) != TRUE
        for finding in findings:
            if finding.problem and finding.problem not in str(condition.get("message")):
                self._tell_problem(work, finding)
            elif was_failing and not finding.problem:
                self._tell_success(finding)

    def tell_drift(self, work: Object, manifest: Object, what: str) -> None:
        """Tell what somebody on the member changed, and that it is as it should be again."""
        message = f"Put back in the cluster {self._cluster}: {what}"
        self._events.record(work, DRIFT_REPAIRED, message)
        self._tell_template(manifest, DRIFT_REPAIRED, message)

    def _tell_problem(self, work: Object, finding: Finding) -> None:
        to, why = f"cluster({self._cluster})", finding.problem
        message = f"Failed to sync work({_key(work)}) to {to}, err: {why}"
        self._events.record(work, SYNC_FAILED, message, is_warning=True)
        subject = f"resource({_key(finding.manifest)})"
        message = f"Failed to create or update {subject} in member {to}: {why}"
        self._tell_template(finding.manifest, SYNC_FAILED, message, is_warning=True)

    def _tell_success(self, finding: Finding) -> None:
        subject = f"resource({_key(finding.manifest)})"
        message = f"Successfully applied {subject} to cluster {self._cluster}"
        self._tell_template(finding.manifest, SYNC_SUCCEED, message)

    def _tell_template(
        self, manifest: Object, reason: str, message: str, *, is_warning: bool = False
    ) -> None:
        template = template_of(manifest) if self._tells_templates else None
        if template is not None:
            self._events.record(template, reason, message, is_warning=is_warning)


def template_of(manifest: Object) -> Object | None:
    """Return as much of a manifest's template as an Event needs; None when it has none."""
    uid = annotations_of(manifest).get(stamps.TEMPLATE_UID)
    if not uid:
        return None
    metadata = {"name": name_of(manifest), "namespace": namespace_of(manifest), "uid": uid}
    return {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def _key(kube_object: Object) -> str:
    return f"{namespace_of(kube_object)}/{name_of(kube_object)}"
