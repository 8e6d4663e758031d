"""What a manifest replaces on a member, and what stays: see the decision record of that name."""

from tests.unit.fleet.execution.member_objects import gadget, ordered, written

from clusterspace.fleet.execution.report import drift_text
from clusterspace.fleet.execution.takeover import FIELD_MANAGER, Update, leaf_paths, plan_update
from clusterspace.kube.managed_fields.field_sets import path_text
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import config_map, deployment


def content_of(update: Update | None, live: Object, *path: str) -> object:
    """Return what is at a path after the update, if there is one to make."""
    return find_at(live if update is None else update.body, *path)


def changed(update: Update | None) -> list[str]:
    return [] if update is None else [path_text(path)[1:] for path in leaf_paths(update.fields)]


def with_container(workload: Object, name: str, image: str) -> Object:
    path = ("spec", "template", "spec", "containers")
    return with_value(workload, [*find_at(workload, *path), {"name": name, "image": image}], *path)


def with_env(workload: Object, **env: str) -> Object:
    path = ("spec", "template", "spec", "containers")
    first, *rest = find_at(workload, *path)
    listed = [{"name": name, "value": value} for name, value in env.items()]
    return with_value(workload, [{**first, "env": listed}, *rest], *path)


def test_nothing_is_done_when_defaults_are_all_that_differs() -> None:
    live = written(ordered(deployment("web")), FIELD_MANAGER)

    assert plan_update(ordered(deployment("web")), live) is None


def test_a_changed_field_is_set() -> None:
    live = written(ordered(config_map("a", {"k": "1"})), FIELD_MANAGER)

    update = plan_update(ordered(config_map("a", {"k": "2"})), live)

    assert changed(update) == ["data.k"]


def test_a_field_the_manifest_dropped_goes() -> None:
    live = written(ordered(config_map("a", {"k": "1", "l": "2"})), FIELD_MANAGER)

    update = plan_update(ordered(config_map("a", {"k": "1"})), live)

    assert content_of(update, live, "data") == {"k": "1"}


def test_a_dropped_field_goes_back_to_its_default() -> None:
    path = ("spec", "template", "spec", "terminationGracePeriodSeconds")
    live = written(ordered(with_value(deployment("web"), 60, *path)), FIELD_MANAGER)

    update = plan_update(ordered(deployment("web")), live)

    assert content_of(update, live, *path) is None, "left out: the member puts the default there"
    assert changed(update) == ["spec.template.spec.terminationGracePeriodSeconds"]


def test_what_others_added_stays() -> None:
    live = written(ordered(deployment("web")), FIELD_MANAGER)
    live = written(with_container(live, "proxy", "proxy:1"), "injector", live)
    live = written(with_value(live, 5, "spec", "minReadySeconds"), "kubectl-edit", live)

    assert plan_update(ordered(deployment("web")), live) is None


def test_what_admission_added_has_no_owner_and_stays() -> None:
    live = written(ordered(deployment("web")), FIELD_MANAGER)
    live = with_container(live, "proxy", "proxy:1")
    live = with_value(
        live, [{"name": "certs", "emptyDir": {}}], "spec", "template", "spec", "volumes"
    )

    update = plan_update(ordered(deployment("web", replicas=3)), live)

    names = [
        each["name"]
        for each in find_at(update and update.body, "spec", "template", "spec", "containers")
    ]
    assert names == ["main", "proxy"]
    assert changed(update) == ["spec.replicas"]


def test_volumes_of_the_manifest_and_of_an_injector_live_side_by_side() -> None:
    live = written(ordered(deployment("web")), FIELD_MANAGER)
    path = ("spec", "template", "spec", "volumes")
    live = with_value(live, [{"name": "certs", "emptyDir": {}}], *path)
    wanted = with_value(deployment("web"), [{"name": "data", "emptyDir": {}}], *path)

    update = plan_update(ordered(wanted), live)

    held = content_of(update, live, *path)
    assert isinstance(held, list)
    assert {each["name"] for each in held} == {"certs", "data"}


def test_the_manifest_replaces_what_the_former_author_of_the_object_set() -> None:
    live = written(with_env(deployment("web"), OLD="1", BOTH="2"), "kubectl-client-side-apply")

    update = plan_update(ordered(with_env(deployment("web"), BOTH="2")), live)

    container = find_at(update and update.body, "spec", "template", "spec", "containers")[0]
    assert container["env"] == [{"name": "BOTH", "value": "2"}]


def test_adopting_an_object_that_says_the_same_changes_nothing_but_its_stamps() -> None:
    live = written(with_env(deployment("web"), A="1"), "helm")
    live = written(with_container(live, "proxy", "proxy:1"), "injector", live)

    update = plan_update(ordered(with_env(deployment("web"), A="1")), live)

    assert {each.partition(".")[0] for each in changed(update)} == {"metadata"}


def test_a_field_an_author_still_owns_goes_when_the_manifest_drops_it_after_the_takeover() -> None:
    live = written(with_env(deployment("web"), A="1", B="2"), "kubectl-client-side-apply")
    taken = plan_update(ordered(with_env(deployment("web"), A="1", B="2")), live)
    assert taken is not None
    live = written(taken.body, FIELD_MANAGER, live)

    update = plan_update(ordered(with_env(deployment("web"), A="1")), live)

    container = find_at(update and update.body, "spec", "template", "spec", "containers")[0]
    assert container["env"] == [{"name": "A", "value": "1"}]


def test_keys_of_a_map_go_with_its_author_though_none_of_them_is_the_manifests() -> None:
    live = written(config_map("a", {"legacy": "1"}), "kubectl-create")

    update = plan_update(ordered(config_map("a", {"k": "v"})), live)

    assert content_of(update, live, "data") == {"k": "v"}


def test_an_object_without_a_record_of_owners_is_replaced_as_a_whole() -> None:
    live = config_map("a", {"legacy": "1"})

    update = plan_update(ordered(config_map("a", {"k": "v"})), live)

    assert content_of(update, live, "data") == {"k": "v"}


def test_a_kind_without_a_schema_follows_the_same_rule() -> None:
    live = written(ordered(gadget(size=1, colour="red")), FIELD_MANAGER)
    live = written(with_value(live, "x", "spec", "theirs"), "operator", live)

    update = plan_update(ordered(gadget(size=1)), live)

    assert content_of(update, live, "spec") == {"size": 1, "theirs": "x"}


def test_lists_that_cannot_be_matched_are_the_members_to_judge() -> None:
    live = written(ordered(deployment("web")), FIELD_MANAGER)
    path = ("spec", "template", "spec", "containers")
    nameless = with_value(deployment("web"), [{"image": "a"}], *path)

    update = plan_update(ordered(nameless), live)

    assert content_of(update, live, *path) == [{"image": "a"}]


def test_what_the_server_keeps_for_itself_is_sent_back_as_it_came() -> None:
    live = with_metadata(
        written(ordered(config_map("a", {"k": "1"})), FIELD_MANAGER),
        uid="u1",
        resourceVersion="7",
        finalizers=["example.com/theirs"],
    )

    update = plan_update(ordered(config_map("a", {"k": "2"})), live)

    assert update is not None
    assert update.body["metadata"] == live["metadata"]


def test_status_is_not_a_manifests_to_change() -> None:
    live = {**written(ordered(deployment("web")), FIELD_MANAGER), "status": {"replicas": 9}}

    assert plan_update(ordered(deployment("web")), live) is None


def test_annotations_others_put_there_stay() -> None:
    live = written(deployment("web"), "helm")
    live = with_metadata(live, annotations={"deployment.kubernetes.io/revision": "4"})

    update = plan_update(ordered(deployment("web")), live)

    assert update is not None
    assert annotations_of(update.body)["deployment.kubernetes.io/revision"] == "4"


def test_drift_is_told_with_the_field_and_who_changed_it() -> None:
    live = written(ordered(deployment("web", replicas=2)), FIELD_MANAGER)
    drifted = written(with_value(live, 9, "spec", "replicas"), "kubectl", live, subresource="scale")

    update = plan_update(ordered(deployment("web", replicas=2)), drifted)

    assert update is not None
    assert drift_text(update, drifted) == "spec.replicas (changed by kubectl)"
