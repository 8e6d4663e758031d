"""Two snapshots of a cluster compared: what changed, what is explained, what was not seen.

    before = decode(file.read_bytes())
    report = compare(before, await capture(member, before.selection, clock))
    report.is_unchanged, report.summary

What was not seen is never unchanged. What came or went is explained only where the reason is in the
two snapshots: an autoscaler that asked for it, a CronJob's schedule, a Job that had finished.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from clusterspace.errors import CannotProve
from clusterspace.fleet.migration.snapshots import (
    AUTOSCALER,
    CLAIM,
    JOB,
    KINDS,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    Identities,
    Identity,
    Snapshot,
    digest_of,
    targets_of,
)
from clusterspace.kube.plain_text import line

Key: TypeAlias = tuple[str, str, str]
_MOST_TEXT: Final = 800


class Verdict(Enum):
    """What became of one object; the worst first, as reports have them."""

    CHANGED = "changed"
    GONE = "gone"
    NEW = "new"
    NOT_SEEN = "not seen"
    EXPLAINED = "explained"
    """Not as before, for a reason that is seen and is not the migration."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One object that is not simply unchanged, and why we think so."""

    verdict: Verdict
    kind: str
    namespace: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class KindCounts:
    """How many objects of a kind there were, and what became of them."""

    kind: str
    before: int
    after: int
    unchanged: int
    by_verdict: Mapping[Verdict, int]


@dataclass(frozen=True, slots=True)
class Report:
    """What a comparison found."""

    before: Snapshot
    after: Snapshot
    findings: tuple[Finding, ...]
    """The worst first."""
    counts: tuple[KindCounts, ...]
    information: tuple[str, ...] = ()
    """What autoscalers did meanwhile: it may be as it likes."""
    digests: tuple[str, str] = ("", "")
    """Of the two snapshots."""

    @property
    def compared(self) -> int:
        """How many objects there were before."""
        return sum(each.before for each in self.counts)

    @property
    def is_unchanged(self) -> bool:
        """Whether everything was seen, and is as it was but for what is explained."""
        is_fine = all(each.verdict is Verdict.EXPLAINED for each in self.findings)
        return is_fine and self.compared > 0

    @property
    def summary(self) -> str:
        """The report in a sentence."""
        if not self.compared and not self.findings:
            return "Nothing was compared: nothing ran there before."
        count = Counter(each.verdict for each in self.findings)
        parts = [f"{count[each]} {each.value}" for each in Verdict if count[each]]
        same = f"{sum(each.unchanged for each in self.counts)} of {self.compared} unchanged"
        if self.is_unchanged:
            return f"Nothing changed: {', '.join([same, *parts])}."
        is_change = any(count[each] for each in (Verdict.CHANGED, Verdict.GONE, Verdict.NEW))
        head = "Something changed" if is_change else "Not everything was seen"
        return f"{head}: {', '.join([*parts, same])}."


def compare(before: Snapshot, after: Snapshot) -> Report:
    """Compare two snapshots of one cluster; CannotProve when they cannot be compared."""
    if before.cluster_uid != after.cluster_uid:
        why = f"it has the UID {after.cluster_uid}, and the snapshot is of {before.cluster_uid}"
        raise CannotProve(after.cluster, f"the snapshot is of another cluster: {why}")
    if before.namespaces != after.namespaces:
        raise CannotProve(after.cluster, "the snapshots are of different namespaces")
    comparison = _Comparison(before, after)
    order = {each: index for index, each in enumerate((*Verdict, *KINDS))}
    findings = sorted(
        comparison.findings(),
        key=lambda each: (order[each.verdict], order[each.kind], each.namespace, each.name),
    )
    by_kind: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
    for each in findings:
        by_kind[each.kind][each.verdict] += 1
    then, now = before.counts(), after.counts()
    counts = (
        KindCounts(each, then[each], now[each], comparison.unchanged[each], by_kind[each])
        for each in KINDS
    )
    digests = digest_of(before), digest_of(after)
    information = tuple(comparison.information())
    return Report(before, after, tuple(findings), tuple(counts), information, digests)


def _by_key(snapshot: Snapshot) -> Identities:
    seen = snapshot.identities
    return seen if isinstance(seen, Identities) else Identities(seen)


class _Comparison:
    """Two snapshots, by key and by UID, and what is known to explain a difference."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self.before, self.after = _by_key(before), _by_key(after)
        self.autoscalers: dict[tuple[str, str], Identity] = {}
        self.come_or_gone: list[Identity] = []
        for seen, other in ((self.before, self.after), (self.after, self.before)):
            for each in seen:
                if each.kind == AUTOSCALER:
                    self.autoscalers[each.namespace, each.info.get("target", "")] = each
                if other.by_key(each.key) is None:
                    self.come_or_gone.append(each)
        self.unseen = (*before.unseen, *after.unseen)
        self.dark = {(each.kind, each.namespace) for each in self.unseen if not each.name}
        self.dark_objects = {
            (each.kind, each.namespace, each.name) for each in self.unseen if each.name
        }
        self.unchanged: Counter[str] = Counter()
        self.explained: dict[Key, str] = {}
        self.explained_uids: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        for each in self.unseen:
            where = each.namespace or "all namespaces"
            why = each.why if each.name else f"no {each.kind} in {where} was seen: {each.why}"
            yield Finding(Verdict.NOT_SEEN, each.kind, each.namespace, each.name, why)
        self._explain_jobs()
        self._explain_scaling()
        for key, then, now in self._pairs():
            kind, namespace, _ = key
            if {(kind, namespace), (kind, "")} & self.dark or key in self.dark_objects:
                continue  # said above, and neither gone nor unchanged
            finding = self._finding(key, then, now)
            if finding is not None:
                yield finding
            elif then is not None:
                self.unchanged[kind] += 1

    def _pairs(self) -> Iterator[tuple[Key, Identity | None, Identity | None]]:
        """Yield everything that was seen, as it was and as it is."""
        for then in self.before:
            yield then.key, then, self.after.by_key(then.key)
        for now in self.after:
            if self.before.by_key(now.key) is None:
                yield now.key, None, now

    def _by_uid(self, uid: str) -> Identity | None:
        return self.after.by_uid(uid) or self.before.by_uid(uid)

    def _finding(self, key: Key, then: Identity | None, now: Identity | None) -> Finding | None:
        explanation = self.explained.get(key, "")
        if now is None:
            why = explanation or "it was there before, and is not any more"
            owner = then and self.before.by_uid(then.owner.uid)
            if not explanation and owner is not None and self._growth(owner) < 0:
                why += f": {owner.kind} {owner.name} {self._scaled(owner)}"
            verdict = Verdict.EXPLAINED if explanation else Verdict.GONE
        elif then is None:
            why = explanation or f"it was not there before: {self._origin(now)}"
            verdict = Verdict.EXPLAINED if explanation else Verdict.NEW
        elif then.uid != now.uid:
            why = f"it was deleted and made anew: its UID was {then.uid}, and is {now.uid}"
            if now.owner.uid:
                why += f"; {self._origin(now)}"
            verdict = Verdict.CHANGED
        elif then.facts == now.facts:
            return None
        else:
            verdict, why = self._changes(then, now)
        return Finding(verdict, *key, line(why, _MOST_TEXT))

    def _changes(self, then: Identity, now: Identity) -> tuple[Verdict, str]:
        """Return what became of an object with the same UID and other facts."""
        # What had not begun before has begun meanwhile: that is for pods that waited for a node,
        # and claims that waited for a volume. What goes from something to something else, or to
        # nothing, never explains itself.
        had_not_begun = then.kind in (CLAIM, JOB) or then.info.get("phase") == "Pending"
        texts: list[str] = []
        is_explained = True
        for each in {**then.facts, **now.facts}:
            old, new = then.facts.get(each, ""), now.facts.get(each, "")
            if old == new:
                continue
            texts.append(f"{each} was {old or 'not there'}, and is {new or 'not there'}")
            if then.kind == SERVICE:
                uids = {target.rpartition(" ")[2] for target in targets_of(old) ^ targets_of(new)}
                is_explained &= uids <= self.explained_uids
            else:
                is_first = not old and not (each.startswith("restarts of ") and new != "0")
                is_explained &= had_not_begun and is_first
        joined = "; ".join(texts)
        if not is_explained:
            return Verdict.CHANGED, joined
        if then.kind == SERVICE:
            return Verdict.EXPLAINED, f"it follows pods that were scaled or finished: {joined}"
        return Verdict.EXPLAINED, f"it had not begun before: {joined}"

    def _origin(self, now: Identity) -> str:
        """Say whose something new is, as far as that tells a restart from a roll-out."""
        owner = now.owner
        if not owner.uid:
            return "nothing that was there owns it"
        maker = f"{owner.kind} {owner.name}"
        known = self.before.by_key((owner.kind, now.namespace, owner.name))
        if now.kind == REPLICA_SET:
            return f"{maker} rolled out another pod template"
        if now.kind != POD:
            return f"{maker} made it"
        if known is None or known.uid != owner.uid:
            is_roll_out = owner.kind == REPLICA_SET
            why = " by a roll-out of another pod template" if is_roll_out else ""
            return f"{maker} is new too{why}"
        # Template hashes that pods of this owner had before; seldom asked for.
        pods = (each for each in self.before if each.kind == POD and each.owner.uid == owner.uid)
        old = {each.info.get("template hash", "") for each in pods} - {""}
        new = now.info.get("template hash", "")
        if new and old and new not in old:
            return f"the pod template of {maker} changed, to {new}"
        more = self._growth(known)
        is_replaced = any(
            each.owner.uid == owner.uid and self.after.by_key(each.key) is None
            for each in self.come_or_gone
        )
        if more > 0 and not is_replaced:
            return f"{maker} {self._scaled(known)}"
        return (
            f"{maker} is the same, and so is its pod template, "
            "so a pod was evicted, deleted or lost, and replaced"
        )

    def _scaled(self, workload: Identity) -> str:
        """Say how many replicas a workload went to, and whether a roll-out had begun before."""
        now = self.after.by_key(workload.key)
        new = now.info.get("replicas", "?") if now is not None else "?"
        went = f"went from {workload.info.get('replicas', '?')} to {new} replicas"
        root = self._by_uid(workload.owner.uid)
        if root is None or self._growth(root):
            return went
        return f"{went}, for {root.kind} {root.name} was being rolled out already"

    # -- what explains a difference --------------------------------------------------------------

    def _explain(self, each: Identity, why: str) -> None:
        self.explained[each.key] = why
        if each.uid:
            self.explained_uids.add(each.uid)

    def _explain_jobs(self) -> None:
        """Explain Jobs that a CronJob starts and forgets, or that are kept for a time; their pods.

        A Job that still ran before and is gone is explained by nothing.
        """
        for job in self.come_or_gone:
            has_finished, kept = job.info.get("finished"), job.info.get("kept for")
            if job.kind != JOB:
                continue
            if self.after.by_key(job.key) is not None:
                if job.owner.kind == "CronJob":
                    self._explain(job, f"CronJob {job.owner.name} started it by its schedule")
            elif has_finished and job.owner.kind == "CronJob":
                why = f"it had finished, and CronJob {job.owner.name} keeps only the last"
                self._explain(job, why)
            elif has_finished and kept:
                self._explain(job, f"it had finished, and was kept for {kept} s")
        for pod in self.come_or_gone:
            job = self._by_uid(pod.owner.uid) if pod.kind == POD else None
            if job is not None and job.key in self.explained:
                self._explain(pod, f"it is of Job {job.name}: {self.explained[job.key]}")

    def _explain_scaling(self) -> None:
        """Explain pods that came or went because an autoscaler changed the number of replicas.

        Only where all of this is seen: what owns them, and the Deployment above it, have the same
        UID and the same pod template in both snapshots; the replicas of both differ by as many as
        came or went, which no roll-out does; and an autoscaler has one of them for its target.
        Where pods came *and* went, as many as went were replaced, and only those beyond that are
        the autoscaler's.
        """
        gone: defaultdict[str, list[Identity]] = defaultdict(list)
        come: defaultdict[str, list[Identity]] = defaultdict(list)
        claims: list[Identity] = []
        for each in self.come_or_gone:
            if each.kind == CLAIM:
                claims.append(each)
            elif each.kind == POD and each.owner.uid:
                is_there = self.after.by_key(each.key) is not None
                (come if is_there else gone)[each.owner.uid].append(each)
        for uid in {**gone, **come}:
            workload = self._by_uid(uid)
            root = workload and (self._by_uid(workload.owner.uid) or workload)
            if workload is None or root is None:
                continue
            more = self._growth(workload)
            autoscaler = self._autoscaler_of(workload, root)
            if not more or more != self._growth(root) or autoscaler is None:
                continue
            changed = come[uid] if more > 0 else gone[uid]
            replaced = min(len(gone[uid]), len(come[uid]))
            if not 0 < len(changed) - replaced <= abs(more):
                continue
            both = (each.by_key(root.key) for each in (self.before, self.after))
            old, new = (each.info["replicas"] for each in both if each is not None)
            why = (
                f"{workload.kind} {workload.name} is the same, and so is its pod template; "
                f"replicas went from {old} to {new}, as {AUTOSCALER} {autoscaler.name} asks for"
            )
            for pod in sorted(changed, key=lambda each: each.name)[replaced:]:
                self._explain(pod, why)
                for claim in claims if pod.owner.kind == STATEFUL_SET else ():
                    is_near = claim.namespace == pod.namespace
                    if is_near and claim.name.endswith(f"-{pod.name}"):
                        self._explain(claim, f"it is of Pod {pod.name}: {why}")

    def _growth(self, workload: Identity) -> int:
        """Return by how many replicas a workload grew; 0 if anything else of it changed."""
        then, now = self.before.by_key(workload.key), self.after.by_key(workload.key)
        if then is None or now is None or then.uid != now.uid or then.facts != now.facts:
            return 0
        old, new = then.info.get("replicas", ""), now.info.get("replicas", "")
        return int(new) - int(old) if old.isdecimal() and new.isdecimal() else 0

    def _autoscaler_of(self, *workloads: Identity) -> Identity | None:
        places = ((each.namespace, f"{each.kind}/{each.name}") for each in workloads)
        return next((self.autoscalers[each] for each in places if each in self.autoscalers), None)

    def information(self) -> Iterator[str]:
        """Say what autoscalers did meanwhile."""
        for now in self.after:
            if now.kind != AUTOSCALER:
                continue
            then = self.before.by_key(now.key)
            old = then.info.get("current replicas", "?") if then is not None else "?"
            new = now.info.get("current replicas", "?")
            went = f"has {new} replicas, as before" if old == new else f"went from {old} to {new}"
            target = now.info.get("target", "").replace("/", " ")
            yield line(f"{now.text} of {target} {went}", _MOST_TEXT)
