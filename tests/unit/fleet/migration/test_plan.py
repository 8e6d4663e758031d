"""The plan's file: what comes back as it was written, and what is refused, with its place."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from clusterspace.apis import migrations
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.migration.plan import (
    POLICY_SELECTORS,
    Allow,
    MigrationPlan,
    PlanItem,
    PlannedCluster,
    PlannedOwner,
    PlanSpec,
    Verdict,
    assign_policies,
    new_plan,
    objection_to,
    read_plan,
    write_plan,
)


def item(name: str = "web", **fields: Any) -> PlanItem:
    common: dict[str, Any] = {
        "api_version": "apps/v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": name,
        "take": True,
        "verdict": Verdict.SAME,
        "rank": 4,
        "resource": "deployments",
        "uid": f"uid-of-{name}",
        "resource_version": "7",
    }
    return PlanItem(**{**common, **fields})


def plan(*items: PlanItem) -> MigrationPlan:
    spec = PlanSpec(
        hub_uid="hub-uid",
        cluster=PlannedCluster(name="west", uid="west-uid"),
        made_at="2026-01-02T03:04:05Z",
    )
    return new_plan("west-1", spec, items or (item(),))


def test_a_plan_is_read_as_it_was_written() -> None:
    written = plan(item(allow=(Allow.RESTART,), changes=("spec.replicas",)), item("api"))

    assert read_plan("".join(write_plan(written)).encode(), "west.yaml") == written


def test_the_file_begins_with_what_it_is() -> None:
    assert "".join(write_plan(plan())).startswith(
        "apiVersion: migration.clusterspace.io/v1alpha1\nkind: MigrationPlan\nmetadata:\n"
    )


def test_two_plans_that_differ_in_one_word_have_two_digests() -> None:
    assert plan(item(take=True)).digest != plan(item(take=False)).digest


def edited(change: Callable[[Any], object]) -> bytes:
    restarts: dict[str, Any] = {"verdict": Verdict.WOULD_RESTART, "reason": "pods restart"}
    old = item("old", take=False, **restarts)
    written = plan(item(), item("api", policy="migration-west-1"), old)
    document = yaml.safe_load("".join(write_plan(written)))
    change(document)
    return yaml.safe_dump(document).encode()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda d: d.update(apiVersion="migration.clusterspace.io/v2"),
            "west.yaml: apiVersion is 'migration.clusterspace.io/v2', and this clusterspace reads "
            f"{migrations.API_VERSION}: apply it with the version that made it, or plan again",
        ),
        (
            lambda d: d.update(kind="Deployment"),
            "west.yaml: kind is 'Deployment', and not MigrationPlan",
        ),
        (
            lambda d: d["spec"]["items"][1].update(verdict="Fine"),
            "west.yaml: spec.items[1].verdict: Invalid enum value 'Fine'",
        ),
        (
            lambda d: d["spec"]["items"][1].update(tkae=True),
            "west.yaml: spec.items[1]: Object contains unknown field `tkae`",
        ),
        (
            lambda d: d["spec"]["items"][1].update(take="maybe"),
            "west.yaml: spec.items[1].take: Expected `bool`, got `str`",
        ),
        (
            lambda d: d["spec"]["items"][1].pop("uid"),
            "west.yaml: spec.items[1]: Object missing required field `uid`",
        ),
        (
            lambda d: d["spec"]["items"][1].update(uid=""),
            "west.yaml: spec.items[1].uid is empty",
        ),
        (
            lambda d: d["spec"]["items"][1].update(name="web"),
            "west.yaml: spec.items[1]: Deployment shop/web is in spec.items[0] already",
        ),
        (
            lambda d: d["spec"]["items"][1].update(rank=0),
            "west.yaml: spec.items[1].rank is 0, after 4: what others need comes before them",
        ),
        (
            lambda d: d["spec"]["items"][2].update(take=True),
            "west.yaml: spec.items[2]: Deployment shop/old has take: true, but pods restart: "
            "`allow: [Restart]` takes it all the same",
        ),
        (
            lambda d: d["spec"]["items"][1].update(retainsReplicas=True),
            "west.yaml: spec.items[1]: Deployment shop/api was edited: only `take` and `allow` are "
            "for people, the rest is what hub and member answered; plan again",
        ),
        (
            lambda d: d["spec"]["items"][2].update(verdict="Same", take=True),
            "west.yaml: spec.items[2]: Deployment shop/old was edited: ",
        ),
        (
            lambda d: d["spec"]["items"][1].pop("policy"),
            "west.yaml: spec.items[1]: Deployment shop/api was edited: ",
        ),
        (
            lambda d: d["metadata"].update(name="West!"),
            "west.yaml: metadata.name 'West!': ",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(change: Callable[[Any], object], sentence: str) -> None:
    with pytest.raises(CannotMigrate) as refused:
        read_plan(edited(change), "west.yaml")

    assert str(refused.value).startswith(sentence)


def test_what_people_edit_is_no_part_of_the_checksum() -> None:
    def allow_all(document: Any) -> None:
        for each in document["spec"]["items"]:
            each.update(take=False, allow=["Owner", "Changes"])

    read = read_plan(edited(allow_all), "west.yaml")

    assert [each.allow for each in read.spec.items] == [(Allow.OWNER, Allow.CHANGES)] * 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "west.yaml is no plan: make one with `clusterspace migrate plan`"),
        (b"[]", "west.yaml is no plan: make one with `clusterspace migrate plan`"),
        (b"a: [", "west.yaml, line 2 is not YAML: "),
        (b"\xff\xfe\x00", "west.yaml is not YAML: "),
        (
            b"spec:\n  items:\n  - take: false\n    name: web\n    take: true\n",
            "west.yaml, line 5 is not YAML: take is there twice",
        ),
        (b"a: &a [*a]", "west.yaml: kind is None, and not MigrationPlan"),
    ],
)
def test_what_is_no_plan_at_all_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(CannotMigrate) as refused:
        read_plan(text, "west.yaml")

    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("fields", "allow", "why"),
    [
        ({}, (), ""),
        ({"verdict": Verdict.CHANGES, "reason": "a would change"}, (), "a would change: "),
        ({"verdict": Verdict.CHANGES}, (Allow.CHANGES,), ""),
        ({"verdict": Verdict.WOULD_RESTART, "reason": "pods go"}, (Allow.CHANGES,), "pods go: "),
        ({"verdict": Verdict.WOULD_RESTART}, (Allow.RESTART,), ""),
        ({"verdict": Verdict.REFUSED, "reason": "no"}, tuple(Allow), "no"),
        ({"hub_effect": "it gives the same rights"}, (), "on the hub it gives the same rights: "),
        ({"hub_effect": "it gives the same rights"}, (Allow.HUB_EFFECT,), ""),
        (
            {"owner": PlannedOwner(kind="ArgoCD", name="shop", is_reconciling=True)},
            (),
            "ArgoCD shop looks after it and would change it back: ",
        ),
        (
            {"owner": PlannedOwner(kind="ArgoCD", name="shop", is_reconciling=True)},
            (Allow.OWNER,),
            "",
        ),
        ({"owner": PlannedOwner(kind="Helm", name="shop")}, (), ""),
    ],
)
def test_what_is_not_done_unasked(
    fields: dict[str, Any], allow: tuple[Allow, ...], why: str
) -> None:
    said = objection_to(item(allow=allow, **fields))

    assert said.startswith(why) if why else not said


def test_a_verdict_that_got_worse_is_an_objection() -> None:
    assert objection_to(item(), Verdict.WOULD_RESTART, "pods would restart").startswith("pods")


def test_each_namespace_has_policies_of_its_own_and_none_names_too_many() -> None:
    many = [item(f"web-{number}") for number in range(POLICY_SELECTORS + 1)]
    others = [item("db", namespace="bank"), item("role", namespace="")]
    namespace = item("shop", api_version="v1", kind="Namespace", namespace="", rank=0)

    assigned = list(assign_policies((namespace, *many, *others), "west-1"))

    assert [each.policy for each in assigned if each.kind == "Namespace"] == [""]
    assert [each.policy for each in assigned[-3:]] == [
        "migration-west-1-1",
        "migration-west-1",
        "migration-west-1",
    ]
    assert len({each.policy_path for each in assigned}) == 5
    assert msgspec.structs.replace(assigned[1], policy="") == many[0]
