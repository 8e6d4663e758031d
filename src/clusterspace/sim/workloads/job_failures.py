"""How the end of a pod counts for its Job: failure policies, success policies and indexes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, namespace_of
from clusterspace.sim.pods import is_ending, phase_of

INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def index_of(pod: Object) -> int | None:
    """Return the completion index of a pod; None when it has none."""
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def failures_before(pod: Object, annotation: str = INDEX_FAILURES) -> int:
    """Return how often the index of a pod had failed when the pod was made."""
    text = annotations_of(pod).get(annotation, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def replaces_failed_only(job: Object) -> bool:
    """Whether a pod that is ending is not replaced before it has ended."""
    return find_at(job, "spec", "podReplacementPolicy") == "Failed"


def is_failed(pod: Object, job: Object) -> bool:
    """Whether a pod has failed; one that is deleted will never succeed."""
    if phase_of(pod) == "Failed":
        return True
    if replaces_failed_only(job):
        return False
    return is_ending(pod) and phase_of(pod) != "Succeeded"


# -- pod failure policies ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure policy says of one failed pod."""

    action: str = "Count"
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the backoff limits."""
        return self.action != "Ignore"


_COUNTED = Verdict()


def judge(pod: Object, job: Object) -> Verdict:
    """Return what the first rule that matches a failed pod says; without one it counts."""
    rules: list[Object] = find_at(job, "spec", "podFailurePolicy", "rules") or []
    subject = f"{namespace_of(pod)}/{name_of(pod)}"
    for number, rule in enumerate(rules):
        action = str(rule.get("action"))
        matching = f"matching {action} rule at index {number}"
        if on_exit := rule.get("onExitCodes"):
            if phase_of(pod) != "Failed":
                continue
            found = _matching_exit(pod, on_exit)
            if found is not None:
                container, code = found
                message = (
                    f"Container {container} for pod {subject} failed with exit code {code} "
                    f"{matching}"
                )
                return Verdict(action, message)
            continue
        for pattern in rule.get("onPodConditions") or ():
            wanted = (pattern.get("type"), pattern.get("status") or "True")
            for each in find_at(pod, "status", "conditions") or ():
                if (each.get("type"), each.get("status")) == wanted:
                    message = f"Pod {subject} has condition {each['type']} {matching}"
                    return Verdict(action, message)
    return _COUNTED


def _matching_exit(pod: Object, rule: Object) -> tuple[str, int] | None:
    values: list[int] = rule.get("values") or []
    for field in ("containerStatuses", "initContainerStatuses"):
        for status in find_at(pod, "status", field) or ():
            code = find_at(status, "state", "terminated", "exitCode")
            if not code or rule.get("containerName") not in (None, "", status.get("name")):
                continue
            if (code in values) == (rule.get("operator") == "In"):
                return str(status.get("name")), int(code)
    return None


# -- success policies ----------------------------------------------------------------------------


def success_message(job: Object, succeeded: frozenset[int]) -> str:
    """Return which rule of a success policy these indexes meet; empty when none."""
    rules: list[Object] = find_at(job, "spec", "successPolicy", "rules") or []
    for number, rule in enumerate(rules):
        counted, needed = succeeded, rule.get("succeededCount") or 0
        if listed := rule.get("succeededIndexes"):
            asked = parse_ranges(str(listed), find_at(job, "spec", "completions") or 0)
            counted, needed = succeeded & asked, needed or len(asked)
        if needed and len(counted) >= needed:
            return f"Matched rules at index {number}"
    return ""


# -- indexes, as Jobs list them ------------------------------------------------------------------


def parse_ranges(text: str, completions: int) -> frozenset[int]:
    """Read a list of indexes; those that no pod of the Job has are left out.

    >>> sorted(parse_ranges("0-2,5-99", completions=7))
    [0, 1, 2, 5, 6]
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            found.update(range(int(first), min(int(last or first) + 1, completions)))
    return frozenset(found)


def format_ranges(numbers: Iterable[int]) -> str:
    """Write a list of indexes; two that follow each other are no range yet.

    >>> format_ranges({0, 1, 2, 5, 7, 8})
    '0-2,5,7,8'
    """
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][-1] == number - 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ",".join((",", "-")[span[-1] - span[0] > 1].join(map(str, span)) for span in spans)


def failed_indexes(job: Object, pods: Sequence[Object]) -> frozenset[int]:
    """Return the indexes that are given up: too many failures, or a rule that says so."""
    limit: int = find_at(job, "spec", "backoffLimitPerIndex") or 0
    completions: int = find_at(job, "spec", "completions") or 0
    known = parse_ranges(str(find_at(job, "status", "failedIndexes") or ""), completions)
    found: set[int] = set()
    for pod in pods:
        index = index_of(pod)
        if index is None or not is_failed(pod, job):
            continue
        verdict = judge(pod, job)
        if verdict.action == "FailIndex" or failures_before(pod) + verdict.counts > limit:
            found.add(index)
    return known | found
