"""Two snapshots compared: nothing that was not seen is unchanged, and nothing bad is explained."""

import re
from typing import Any

import msgspec
import pytest

from clusterspace.errors import CannotProve
from clusterspace.fleet.migration.proof import Finding, Report, Verdict, compare
from clusterspace.fleet.migration.proof_documents import document_of, html_of, text_of
from clusterspace.fleet.migration.snapshots import (
    KINDS,
    Identities,
    Identity,
    Reference,
    Snapshot,
    Unseen,
    decode,
    encode,
)

REPLICA_SET = Reference("ReplicaSet", "web-5d4c", "rs-1")
STATEFUL_SET = Reference("StatefulSet", "db", "sts-1")


def pod(
    name: str,
    owner: Reference = REPLICA_SET,
    *,
    uid: str = "",
    template: str = "5d4c",
    restarts: str = "0",
    **changed: str,
) -> Identity:
    facts = {
        "start time": "2026-03-01T10:00:00Z",
        "node": "node-1",
        "container main": f"containerd://{uid or name}",
        "restarts of main": restarts,
        **changed,
    }
    info = {"phase": "Running", "template hash": template}
    return Identity("Pod", "shop", name, uid or f"uid-{name}", owner, facts, info)


def replica_set(replicas: int = 2, *, uid: str = "rs-1", template: str = "5d4c") -> Identity:
    return Identity(
        "ReplicaSet",
        "shop",
        f"web-{template}",
        uid,
        Reference("Deployment", "web", "d-1"),
        {"template hash": template, "pod template": f"digest of {template}"},
        {"replicas": str(replicas)},
    )


def deployment(replicas: int = 2, template: str = "5d4c") -> Identity:
    facts, info = {"pod template": f"digest of {template}"}, {"replicas": str(replicas)}
    return Identity("Deployment", "shop", "web", "d-1", facts=facts, info=info)


def scaled(replicas: int) -> tuple[Identity, ...]:
    return deployment(replicas), replica_set(replicas), autoscaler(replicas)


def autoscaler(current: int, target: str = "Deployment/web") -> Identity:
    info = {"target": target, "current replicas": str(current), "desired replicas": str(current)}
    return Identity("HorizontalPodAutoscaler", "shop", "web", "hpa-1", info=info)


def service(*pods: Identity, name: str = "web") -> Identity:
    facts = {
        f"endpoint 10.0.0.{len(each.name)}{index}": f"Pod {each.name} {each.uid}"
        for index, each in enumerate(pods)
    }
    return Identity("Service", "shop", name, facts=facts)


def job(name: str, owner: Reference | None = None, *, finished: str = "yes") -> Identity:
    cron = owner or Reference("CronJob", "nightly", "cron-1")
    return Identity(
        "Job", "shop", name, f"uid-{name}", cron, {"start time": "x"}, {"finished": finished}
    )


def snapshot(*identities: Identity, **changed: Any) -> Snapshot:
    taken: dict[str, Any] = {
        "cluster": "west",
        "cluster_uid": "c-1",
        "taken_by": "ops",
        "began": "2026-03-01T11:00:00Z",
        "ended": "2026-03-01T11:00:02Z",
        "namespaces": ("shop",),
        "identities": identities,
        **changed,
    }
    return Snapshot(**taken)


def verdicts(report: Report) -> dict[str, Verdict]:
    return {f"{each.kind} {each.name}": each.verdict for each in report.findings}


def reason(report: Report, name: str) -> str:
    return next(each.why for each in report.findings if each.name == name)


RUNNING = (replica_set(), pod("web-a"), pod("web-b"), service(pod("web-a"), pod("web-b")))


def test_what_is_as_it_was_is_unchanged() -> None:
    report = compare(snapshot(*RUNNING), snapshot(*RUNNING))

    assert report.is_unchanged
    assert report.findings == ()
    assert report.summary == "Nothing changed: 4 of 4 unchanged."
    assert {each.kind: each.unchanged for each in report.counts if each.before} == {
        "ReplicaSet": 1,
        "Pod": 2,
        "Service": 1,
    }


def test_pods_of_one_address_are_all_behind_it_in_whatever_order_they_come() -> None:
    """Pods in the network of their node have its address."""

    def on_one_node(*pods: Identity) -> Identity:
        slices = [
            Identity(
                "Service", "shop", "web", facts={"endpoint 10.1.1.1": f"Pod {it.name} {it.uid}"}
            )
            for it in pods
        ]
        return Identities(slices)[0]

    a, b, c = pod("web-a"), pod("web-b"), pod("web-c")

    same = compare(snapshot(on_one_node(a, b)), snapshot(on_one_node(b, a)))
    gone = compare(snapshot(a, b, on_one_node(a, b)), snapshot(a, on_one_node(a)))
    more = compare(
        snapshot(*scaled(2), a, b, on_one_node(a, b)),
        snapshot(*scaled(3), a, b, c, on_one_node(c, a, b)),
    )

    assert same.findings == ()
    assert verdicts(gone) == {"Pod web-b": Verdict.GONE, "Service web": Verdict.CHANGED}
    assert reason(gone, "web") == (
        "endpoint 10.1.1.1 was Pod web-a uid-web-a and Pod web-b uid-web-b, and is Pod web-a "
        "uid-web-a"
    )
    assert verdicts(more) == {"Pod web-c": Verdict.EXPLAINED, "Service web": Verdict.EXPLAINED}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (pod("web-a", REPLICA_SET, restarts="1"), "restarts of main was 0, and is 1"),
        (
            pod("web-a", REPLICA_SET, **{"container main": "c://other"}),
            "container main was",
        ),
        (pod("web-a", REPLICA_SET, **{"start time": "2026-03-01T10:59:00Z"}), "start time was"),
        (pod("web-a", node="node-2"), "node was node-1, and is node-2"),
        (pod("web-a", REPLICA_SET, **{"container main": ""}), "and is not there"),
        (
            pod("web-a", REPLICA_SET, **{"container sidecar": "containerd://s"}),
            "container sidecar was not there",
        ),
        (pod("web-a", uid="another"), "deleted and made anew"),
    ],
)
def test_a_pod_that_restarted_is_changed(after: Identity, why: str) -> None:
    report = compare(snapshot(replica_set(), pod("web-a")), snapshot(replica_set(), after))

    assert verdicts(report) == {"Pod web-a": Verdict.CHANGED}
    assert why in report.findings[0].why
    assert not report.is_unchanged


def test_what_is_bound_to_another_volume_is_changed() -> None:
    before = Identity("PersistentVolumeClaim", "shop", "data-db-0", "pvc", facts={"volume": "pv-1"})
    after = msgspec.structs.replace(before, facts={"volume": "pv-2"})

    report = compare(snapshot(before), snapshot(after))

    assert verdicts(report) == {"PersistentVolumeClaim data-db-0": Verdict.CHANGED}


def test_what_is_gone_or_new_comes_first_and_is_not_unchanged() -> None:
    stays = pod("web-a")
    report = compare(snapshot(stays, pod("web-b")), snapshot(stays, pod("web-c")))

    assert [each.verdict for each in report.findings] == [Verdict.GONE, Verdict.NEW]
    assert not report.is_unchanged
    assert text_of(report).startswith("Something changed: 1 gone, 1 new, 1 of 2 unchanged.\n")


def test_pods_that_an_autoscaler_asked_for_are_explained() -> None:
    before = snapshot(*scaled(2), *RUNNING[1:])
    more = (pod("web-a"), pod("web-b"), pod("web-c"))
    after = snapshot(*scaled(3), *more, service(*more))

    report = compare(before, after)

    assert report.is_unchanged
    assert verdicts(report) == {"Pod web-c": Verdict.EXPLAINED, "Service web": Verdict.EXPLAINED}
    assert reason(report, "web-c") == (
        "ReplicaSet web-5d4c is the same, and so is its pod template; replicas went from 2 to 3, "
        "as HorizontalPodAutoscaler web asks for"
    )
    assert report.information == (
        "HorizontalPodAutoscaler shop/web of Deployment web went from 2 to 3",
    )


def test_pods_that_an_autoscaler_let_go_are_explained() -> None:
    before = snapshot(*scaled(2), *RUNNING[1:])
    after = snapshot(*scaled(1), pod("web-a"), service(pod("web-a")))

    report = compare(before, after)

    assert report.is_unchanged
    assert verdicts(report)["Pod web-b"] is Verdict.EXPLAINED


def test_without_an_autoscaler_nothing_explains_a_pod_that_went() -> None:
    after = snapshot(replica_set(1), pod("web-a"), service(pod("web-a")))

    report = compare(snapshot(*RUNNING), after)

    assert verdicts(report) == {"Pod web-b": Verdict.GONE, "Service web": Verdict.CHANGED}


def test_pods_that_people_asked_for_are_new_and_not_called_a_replacement() -> None:
    report = compare(
        snapshot(*scaled(1)[:2], pod("web-a")),
        snapshot(*scaled(2)[:2], pod("web-a"), pod("web-b")),
    )

    assert verdicts(report) == {"Pod web-b": Verdict.NEW}
    assert reason(report, "web-b") == (
        "it was not there before: ReplicaSet web-5d4c went from 1 to 2 replicas"
    )


def test_an_autoscaler_of_another_workload_explains_nothing() -> None:
    other = autoscaler(2, "Deployment/api")
    after = snapshot(*scaled(3)[:2], pod("web-a"), pod("web-b"), pod("web-c"), other)

    report = compare(snapshot(*scaled(2)[:2], pod("web-a"), pod("web-b"), other), after)

    assert verdicts(report) == {"Pod web-c": Verdict.NEW}


def test_a_pod_that_was_replaced_is_no_scaling() -> None:
    """The autoscaler asked for one more, and two came for one that went."""
    before = snapshot(*scaled(2), pod("web-a"), pod("web-b"))
    after = snapshot(*scaled(3), pod("web-a"), pod("web-c"), pod("web-d"))

    report = compare(before, after)

    assert verdicts(report) == {
        "Pod web-b": Verdict.GONE,
        "Pod web-c": Verdict.NEW,
        "Pod web-d": Verdict.EXPLAINED,
    }
    assert "so a pod was evicted, deleted or lost, and replaced" in reason(report, "web-c")


def test_a_roll_out_is_told_from_a_replacement() -> None:
    rolled = Reference("ReplicaSet", "web-77f0", "rs-2")
    before = snapshot(*scaled(1), pod("web-a"))
    after = snapshot(
        deployment(1, "77f0"),
        replica_set(0),
        replica_set(1, uid="rs-2", template="77f0"),
        pod("web-z", rolled, template="77f0"),
        autoscaler(1),
    )

    report = compare(before, after)

    assert verdicts(report) == {
        "Deployment web": Verdict.CHANGED,
        "Pod web-a": Verdict.GONE,
        "ReplicaSet web-77f0": Verdict.NEW,
        "Pod web-z": Verdict.NEW,
    }
    assert "Deployment web rolled out another pod template" in reason(report, "web-77f0")
    assert "by a roll-out of another pod template" in reason(report, "web-z")


def test_a_roll_out_that_goes_on_is_no_scaling() -> None:
    """It had begun before, and an autoscaler has the Deployment: old pods go, all the same."""
    new = Reference("ReplicaSet", "web-77f0", "rs-2")
    shared = deployment(2, "77f0"), autoscaler(2)
    before = snapshot(
        *shared, replica_set(2), replica_set(0, uid="rs-2", template="77f0"), pod("web-a")
    )
    after = snapshot(
        *shared,
        replica_set(0),
        replica_set(2, uid="rs-2", template="77f0"),
        pod("web-z", new, template="77f0"),
    )

    report = compare(before, after)

    assert verdicts(report) == {"Pod web-a": Verdict.GONE, "Pod web-z": Verdict.NEW}
    assert reason(report, "web-a") == (
        "it was there before, and is not any more: ReplicaSet web-5d4c went from 2 to 0 replicas, "
        "for Deployment web was being rolled out already"
    )
    assert reason(report, "web-z") == (
        "it was not there before: ReplicaSet web-77f0 went from 0 to 2 replicas, "
        "for Deployment web was being rolled out already"
    )


def test_a_pod_of_a_stateful_set_that_was_made_anew_says_whether_its_template_changed() -> None:
    owner = Identity("StatefulSet", "shop", "db", "sts-1", facts={"pod template": "a"})
    before = snapshot(owner, pod("db-0", STATEFUL_SET))

    evicted = compare(before, snapshot(owner, pod("db-0", STATEFUL_SET, uid="new")))
    rolled = compare(before, snapshot(owner, pod("db-0", STATEFUL_SET, uid="new", template="77")))

    assert "so is its pod template" in evicted.findings[0].why
    assert "the pod template of StatefulSet db changed, to 77" in rolled.findings[0].why


def test_a_scaled_stateful_set_explains_its_claims() -> None:
    def owner(replicas: str) -> Identity:
        info = {"replicas": replicas}
        return Identity("StatefulSet", "shop", "db", "sts-1", info=info)

    claim = Identity("PersistentVolumeClaim", "shop", "data-db-1", "pvc", facts={"volume": "pv"})
    hpa = autoscaler(1, "StatefulSet/db")

    report = compare(
        snapshot(owner("1"), pod("db-0", STATEFUL_SET), hpa),
        snapshot(owner("2"), pod("db-0", STATEFUL_SET), pod("db-1", STATEFUL_SET), claim, hpa),
    )

    assert set(verdicts(report).values()) == {Verdict.EXPLAINED}


def test_jobs_of_a_schedule_come_and_go() -> None:
    old, new = job("nightly-1"), job("nightly-2", finished="")
    of_old = pod("nightly-1-x", Reference("Job", "nightly-1", "uid-nightly-1"))
    of_new = pod("nightly-2-x", Reference("Job", "nightly-2", "uid-nightly-2"))

    report = compare(snapshot(old, of_old, *RUNNING), snapshot(new, of_new, *RUNNING))

    assert report.is_unchanged
    assert set(verdicts(report).values()) == {Verdict.EXPLAINED}
    assert len(report.findings) == 4


def test_a_job_that_had_not_finished_and_is_gone_is_explained_by_nothing() -> None:
    report = compare(snapshot(job("nightly-1", finished="")), snapshot())

    assert verdicts(report) == {"Job nightly-1": Verdict.GONE}


def test_a_pod_that_waited_for_a_node_may_begin() -> None:
    waiting = Identity("Pod", "shop", "web-a", "uid-web-a", REPLICA_SET, {}, {"phase": "Pending"})

    begun = compare(snapshot(waiting), snapshot(pod("web-a")))
    crashed = compare(snapshot(waiting), snapshot(pod("web-a", restarts="3")))

    assert verdicts(begun) == {"Pod web-a": Verdict.EXPLAINED}
    assert verdicts(crashed) == {"Pod web-a": Verdict.CHANGED}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("namespace", ["shop", ""])
def test_what_was_not_seen_is_never_unchanged(side: str, namespace: str) -> None:
    dark = snapshot(replica_set(), unseen=(Unseen("Pod", namespace, "pods is forbidden"),))
    bright = snapshot(*RUNNING[:3])
    pair = (dark, bright) if side == "before" else (bright, dark)

    report = compare(*pair)

    assert not report.is_unchanged
    assert [each.verdict for each in report.findings] == [Verdict.NOT_SEEN]
    assert next(each.unchanged for each in report.counts if each.kind == "Pod") == 0
    assert report.summary.startswith("Not everything was seen: 1 not seen")
    assert "pods is forbidden" in text_of(report)


def test_one_object_that_makes_no_sense_hides_only_itself() -> None:
    odd = snapshot(*RUNNING[:2], unseen=(Unseen("Pod", "shop", "it is no Pod", "web-b"),))

    report = compare(snapshot(*RUNNING[:3]), odd)

    assert verdicts(report) == {"Pod web-b": Verdict.NOT_SEEN}


def test_where_nothing_ran_nothing_is_proved() -> None:
    report = compare(snapshot(), snapshot())

    assert not report.is_unchanged
    assert report.summary == "Nothing was compared: nothing ran there before."


def test_an_empty_answer_after_is_a_loss_and_not_a_proof() -> None:
    report = compare(snapshot(*RUNNING), snapshot())

    assert {each.verdict for each in report.findings} == {Verdict.GONE}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cluster_uid": "c-2"}, "the snapshot is of another cluster"),
        ({"namespaces": ("store",)}, "of different namespaces"),
    ],
)
def test_snapshots_of_other_things_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotProve, match=why):
        compare(snapshot(*RUNNING), snapshot(*RUNNING, **changed))


def test_a_snapshot_survives_its_file() -> None:
    taken = snapshot(*RUNNING, unseen=(Unseen("Job", "", "forbidden"),))

    assert decode(b"".join(encode(taken))) == taken


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not a whole snapshot"),
        (b"apiVersion: v1\nkind: List\n", "not a whole snapshot"),
        (b'{"kind": "List"}', "no snapshot"),
        (b"[]", "not a whole snapshot"),
        (b'{"format": "clusterspace.io/migration-snapshot", "version": 9}', "has version 9"),
        (b'{"format": "clusterspace.io/migration-snapshot", "version": 1}', "was changed"),
        (b"".join(encode(snapshot(*RUNNING)))[:-40], "not a whole snapshot"),
        (
            b"".join(encode(snapshot(*RUNNING))).replace(b"web-a", b"web-x"),
            "its digest is another",
        ),
    ],
)
def test_a_file_that_is_no_snapshot_says_so(text: bytes, why: str) -> None:
    with pytest.raises(CannotProve, match=why):
        decode(text)


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[2J\n"


def hostile_report() -> Report:
    before = snapshot(pod(HOSTILE), cluster=HOSTILE, taken_by=HOSTILE)
    after = snapshot(pod(HOSTILE, restarts="1"), cluster=HOSTILE, taken_by=HOSTILE)
    return compare(before, after)


def test_names_in_the_page_are_text_and_nothing_else() -> None:
    page = html_of(hostile_report())

    tags = {each.lower() for each in re.findall(r"<(/?[a-zA-Z!][a-zA-Z0-9]*)", page)}
    assert tags <= {
        *("!doctype", "html", "/html", "head", "/head", "body", "/body", "meta", "title", "/title"),
        *("style", "/style", "main", "/main", "h1", "/h1", "h2", "/h2", "p", "/p"),
        *("strong", "/strong", "div", "/div", "table", "/table", "thead", "/thead"),
        *("tbody", "/tbody", "tr", "/tr", "th", "/th", "td", "/td", "ul", "/ul", "li", "/li"),
    }
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page
    assert "http://" not in page
    assert "https://" not in page


def test_text_and_json_are_safe_to_print() -> None:
    report = hostile_report()

    assert all(each.isprintable() for each in text_of(report).split("\n"))
    assert "\x1b" not in msgspec.json.encode(document_of(report)).decode()


def test_the_page_begins_with_what_is_wrong_and_says_what_was_looked_at() -> None:
    after = snapshot(
        pod("web-a", restarts="1"), unseen=(Unseen("Job", "", "jobs.batch is forbidden"),)
    )
    page = html_of(compare(snapshot(pod("web-a"), pod("web-b")), after))

    order = [
        page.index(each)
        for each in (
            "Something changed",
            "Changed: 1",
            "Gone: 1",
            "Not seen: 1",
            "How many",
            "What was compared",
        )
    ]
    assert order == sorted(order)
    for said in ("c-1", "by ops", "2026-03-01T11:00:00Z", "SHA-256", "jobs.batch is forbidden"):
        assert said in page


def test_the_document_has_every_kind_and_verdict() -> None:
    report = compare(snapshot(*RUNNING), snapshot(*RUNNING[:3]))
    document = document_of(report)

    assert [each["kind"] for each in document["counts"]] == list(KINDS)
    assert document["isUnchanged"] is False
    assert document["findings"] == [
        {
            "verdict": "gone",
            "kind": "Service",
            "namespace": "shop",
            "name": "web",
            "why": "it was there before, and is not any more",
        }
    ]
    assert document["before"]["sha256"] != document["after"]["sha256"]
    assert (
        Finding(Verdict.GONE, "Service", "shop", "web", document["findings"][0]["why"])
        == (report.findings[0])
    )
