from itertools import permutations
from typing import Any

import pytest

from clusterspace.apis import crds
from clusterspace.apis.crds import definition, definitions
from clusterspace.apiserver.admission.unenforced import UNATTENDED
from clusterspace.apiserver.custom_resources import resource_of
from clusterspace.builtins.definitions import read_definition
from clusterspace.builtins.resources import all_resources
from clusterspace.builtins.strategies import with_stored_version
from clusterspace.builtins.validation.definitions import validate_definition
from clusterspace.kube.objects import name_of
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.pruning import prune

OURS = {name_of(each): each for each in definitions()}


@pytest.mark.parametrize("name", OURS)
def test_every_definition_is_one_we_would_take(name):
    assert validate_definition(with_stored_version({**OURS[name], "status": {}})) == ()


@pytest.mark.parametrize("name", OURS)
def test_a_definition_is_found_alone_by_what_its_file_is_named_after(name):
    resource, _, group = name.partition(".")
    assert definition(resource, group) == OURS[name]


def sample_of(schema: dict[str, Any]) -> Any:
    """Return a value with every field that a schema knows."""
    if "properties" in schema:
        return {name: sample_of(each) for name, each in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"key": sample_of(schema["additionalProperties"])}
    return [sample_of(schema["items"])] if "items" in schema else schema.get("type", "any")


@pytest.mark.parametrize("name", OURS)
def test_no_version_loses_what_another_one_stored(name):
    """A `kubectl delete crp`, which takes v1, made v1beta1 placements forget that they abandon."""
    schemas = {
        each["name"]: each["schema"]["openAPIV3Schema"] for each in OURS[name]["spec"]["versions"]
    }
    for written, read in permutations(schemas, 2):
        whole = {**sample_of(schemas[written]), "metadata": {"name": "whole"}}

        kept = prune(whole, Schema(schemas[read]), is_resource_root=True)

        assert kept.unknown == (), f"written as {written}, lost by {read}"


ACTING = frozenset(
    {
        "clusters",
        "memberclusters",
        "internalmemberclusters",
        "clusterproperties",
        "propagationpolicies",
        "cronfederatedhpas",
        "federatedhpas",
        "federatedresourcequotas",
        "multiclusterservices",
        "serviceexports",
        "serviceimports",
        "remedies",
        "resourceinterpretercustomizations",
        "resourceinterpreterwebhookconfigurations",
        "clusterpropagationpolicies",
        "overridepolicies",
        "clusteroverridepolicies",
        "clusterresourceoverrides",
        "clusterresourceoverridesnapshots",
        "clusterresourceplacements",
        "clusterresourceplacementstatuses",
        "clusterresourceenvelopes",
        "resourceenvelopes",
        "resourceplacements",
        "clusterresourceplacementevictions",
        "clusterresourceplacementdisruptionbudgets",
        "clusterstagedupdateruns",
        "clusterstagedupdatestrategies",
        "clusterapprovalrequests",
        "stagedupdateruns",
        "stagedupdatestrategies",
        "approvalrequests",
        "resourcesnapshots",
        "schedulingpolicysnapshots",
        "resourceoverrides",
        "resourceoverridesnapshots",
        "workloadrebalancers",
        "clustertaintpolicies",
        "resourcebindings",
        "clusterresourcebindings",
        "works",
        "resourceregistries",
        "clusterresourcesnapshots",
        "clusterschedulingpolicysnapshots",
        "migrations",
        "migrationitems",
        "clusterconsumers",
        "clusterprofiles",
    }
)
"""What our controllers and commands act on, or write."""

WRITTEN_BY_THEIRS = frozenset(
    {
        "appliedworks",
    }
)
"""What controllers of others write for each other; no person relies on it."""


def test_every_kind_acts_or_says_that_it_does_not():
    kinds = {
        name: (each["spec"]["group"], each["spec"]["names"]["kind"]) for name, each in OURS.items()
    }
    silent = {
        name
        for name, kind in kinds.items()
        if kind not in UNATTENDED and name.partition(".")[0] not in ACTING | WRITTEN_BY_THEIRS
    }

    assert silent == set()
    assert set(UNATTENDED) <= set(kinds.values())


def test_no_short_name_of_ours_is_a_builtin_kinds():
    builtin = {short for each in all_resources() for short in each.info.short_names}
    ours = {
        short for each in OURS.values() for short in each["spec"]["names"].get("shortNames", ())
    }

    assert ours & builtin == set(), "kubectl warns everybody who uses it"


def test_no_two_kinds_of_ours_have_the_same_short_name():
    shorts = [
        short for each in OURS.values() for short in each["spec"]["names"].get("shortNames", ())
    ]

    assert sorted(shorts) == sorted(set(shorts)), "kubectl takes one, and warns of the other"


def test_all_groups_of_karmada_and_kubefleet_are_served_and_one_of_ours():
    groups = {each["spec"]["group"] for each in OURS.values()}

    assert groups == {
        *(
            f"{group}.karmada.io"
            for group in (
                "apps",
                "autoscaling",
                "cluster",
                "config",
                "networking",
                "policy",
                "remedy",
                "search",
                "work",
            )
        ),
        "multicluster.x-k8s.io",
        "cluster.kubernetes-fleet.io",
        "placement.kubernetes-fleet.io",
        "about.k8s.io",
        "access.clusterspace.io",  # ours alone
        "migration.clusterspace.io",  # ours alone
    }


def _version(name: str, version: str) -> dict[str, Any]:
    versions = OURS[name]["spec"]["versions"]
    return next(each for each in versions if each["name"] == version)


@pytest.mark.parametrize(
    ("name", "version", "path"),
    [
        ("propagationpolicies.policy.karmada.io", "v1alpha1", "spec.conflictResolution"),
        ("clusterpropagationpolicies.policy.karmada.io", "v1alpha1", "spec.suspension.dispatching"),
        ("overridepolicies.policy.karmada.io", "v1alpha1", "spec.overriders.plaintext"),
        ("resourcebindings.work.karmada.io", "v1alpha2", "spec.gracefulEvictionTasks"),
        ("clusterresourcebindings.work.karmada.io", "v1alpha2", "status.aggregatedStatus"),
        ("works.work.karmada.io", "v1alpha1", "spec.suspendDispatching"),
        ("works.work.karmada.io", "v1alpha1", "spec.preserveResourcesOnDeletion"),
        ("clusters.cluster.karmada.io", "v1alpha1", "spec.insecureSkipTLSVerification"),
        ("clusters.cluster.karmada.io", "v1alpha1", "status.resourceSummary.allocatable"),
        ("memberclusters.cluster.kubernetes-fleet.io", "v1beta1", "spec.deleteOptions"),
        ("memberclusters.cluster.kubernetes-fleet.io", "v1", "spec.identity.name"),
        ("works.placement.kubernetes-fleet.io", "v1beta1", "spec.reportBackStrategy.type"),
        ("clusterproperties.about.k8s.io", "v1beta1", "spec.value"),
    ],
)
def test_clients_find_the_fields_they_use(name, version, path):
    schema = _version(name, version)["schema"]["openAPIV3Schema"]
    for step in path.split("."):
        schema = schema["properties"][step]
    assert schema.get("type")


def test_clusters_are_listed_with_karmadas_columns():
    columns = _version("clusters.cluster.karmada.io", "v1alpha1")["additionalPrinterColumns"]
    always = [column["name"] for column in columns if not column.get("priority")]
    assert always == ["VERSION", "MODE", "READY", "AGE"]


def _rules(name: str, version: str):
    definition = read_definition(OURS[name])
    chosen = next(each for each in definition.versions if each.name == version)
    return resource_of(definition, chosen).rules


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "spec", "fields"),
    [
        ("m1", {"syncMode": "Push", "apiEndpoint": "https://1.2.3.4:6443"}, []),
        ("m1", {"syncMode": "Neither"}, ["spec.syncMode", "<nil>"]),
        ("m1", {}, ["spec.syncMode", "<nil>"]),
        ("m.1", {"syncMode": "Pull"}, ["<nil>"]),
        ("m" * 49, {"syncMode": "Pull"}, ["<nil>"]),
        ("m1", {"syncMode": "Pull", "zone": "a", "zones": ["b"]}, ["spec"]),
        ("m1", {"syncMode": "Pull", "proxyURL": "ftp://x"}, ["spec.proxyURL"]),
    ],
)
def test_a_cluster_must_be_one_that_can_be_reached(name, spec, fields):
    rules = _rules("clusters.cluster.karmada.io", "v1alpha1")
    found = rules.validate_create(_object(name, spec))
    assert [cause.field for cause in found] == fields


def test_a_policy_is_filled_in_as_karmada_does():
    rules = _rules("propagationpolicies.policy.karmada.io", "v1alpha1")
    selectors = [{"apiVersion": "v1", "kind": "ConfigMap"}]
    filled = rules.default(_object("p", {"resourceSelectors": selectors}))
    assert filled["spec"]["conflictResolution"] == "Abort"
    assert filled["spec"]["preemption"] == "Never"
    assert filled["spec"]["schedulerName"] == "default-scheduler"
    assert filled["spec"]["priority"] == 0
    assert rules.validate_create(filled) == ()


def test_a_placement_keeps_its_kind_of_policy():
    rules = _rules("clusterresourceplacements.placement.kubernetes-fleet.io", "v1beta1")
    selectors = [{"group": "", "version": "v1", "kind": "Namespace", "name": "n"}]
    spec = {"resourceSelectors": selectors, "policy": {"placementType": "PickAll"}}
    old = rules.default(_object("p", spec))
    fixed = {"placementType": "PickFixed", "clusterNames": ["a"]}
    new = rules.default(_object("p", {**spec, "policy": fixed}))
    assert rules.validate_create(old) == ()
    (cause,) = rules.validate_update(new, old, "")
    assert cause.field == "spec.policy"
    assert "self.placementType != oldSelf.placementType" in cause.message


FIXED = {"placementType": "PickFixed", "clusterNames": ["a"]}
SO_MANY = {"placementType": "PickN", "numberOfClusters": 1}
EVERY = {"placementType": "PickAll"}
SPREAD = {"topologySpreadConstraints": [{"topologyKey": "zone"}]}
TOLERATING = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
NEARBY = {"affinity": {"clusterAffinity": {}}}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    "policy",
    [
        {**FIXED, **NEARBY},
        {**FIXED, "numberOfClusters": 1},
        {**FIXED, **SPREAD},
        {**FIXED, **TOLERATING},
        {**EVERY, "clusterNames": ["a"]},
        {**EVERY, "numberOfClusters": 1},
        {**EVERY, **SPREAD},
        {**SO_MANY, "clusterNames": ["a"]},
        {"placementType": "PickN"},
        {**SO_MANY, "numberOfClusters": -1},
        {**EVERY, "tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]},
        {**EVERY, "tolerations": [{"operator": "Equal", "value": "yes"}]},
        {**EVERY, "tolerations": [{"key": "gpu", "operator": "Near"}]},
        {**EVERY, "tolerations": [{"key": "gpu", "effect": "NoExecute"}]},
        {**SO_MANY, "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 0}]},
        {"placementType": "PickSome"},
    ],
    ids=str,
)
def test_a_placement_takes_only_what_its_type_can_mean(version, policy):
    rules = _rules("clusterresourceplacements.placement.kubernetes-fleet.io", version)
    selectors = [{"group": "", "version": "v1", "kind": "Namespace", "name": "n"}]
    wanted = rules.default(_object("p", {"resourceSelectors": selectors, "policy": policy}))
    assert any(cause.field.startswith("spec.policy") for cause in rules.validate_create(wanted))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    "policy", [FIXED, EVERY, {**EVERY, **TOLERATING, **NEARBY}, {**SO_MANY, **SPREAD}], ids=str
)
def test_a_placement_may_have_all_that_its_type_can_mean(version, policy):
    rules = _rules("clusterresourceplacements.placement.kubernetes-fleet.io", version)
    selectors = [{"group": "", "version": "v1", "kind": "Namespace", "name": "n"}]
    wanted = rules.default(_object("p", {"resourceSelectors": selectors, "policy": policy}))
    assert rules.validate_create(wanted) == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"policy": EVERY}, {}),
        ({"strategy": {"type": "External"}}, {"strategy": {"type": "RollingUpdate"}}),
        ({"statusReportingScope": "NamespaceAccessible"}, {}),
    ],
    ids=["policy taken away", "no longer external", "another scope of reports"],
)
def test_a_placement_keeps_what_cannot_be_changed(before, after):
    rules = _rules("clusterresourceplacements.placement.kubernetes-fleet.io", "v1beta1")
    selectors = [{"group": "", "version": "v1", "kind": "Namespace", "name": "n"}]
    old = rules.default(_object("p", {"resourceSelectors": selectors, **before}))
    new = rules.default(_object("p", {"resourceSelectors": selectors, **after}))
    assert rules.validate_create(old) == ()
    assert rules.validate_update(new, old, "") != ()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a directory that has one definition and may keep what was parsed of it."""
    source = next(crds._DIRECTORY.glob("*.yaml"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(crds, "_DIRECTORY", tmp_path)
    monkeypatch.setattr(crds, "_PARSED", tmp_path / "__pycache__" / "definitions.json")
    return tmp_path


def read_again():
    return crds.definitions.__wrapped__()


def test_a_definition_that_was_parsed_once_is_not_parsed_again(package, monkeypatch):
    first = read_again()
    monkeypatch.delattr(crds, "_parse")

    assert read_again() == first
    assert [path.name for path in (package / "__pycache__").iterdir()] == ["definitions.json"]


def test_a_definition_that_changed_is_parsed_anew(package):
    read_again()
    (source,) = package.glob("*.yaml")
    source.write_text(source.read_text().replace("\n  name: ", "\n  name: un", 1))

    (found,) = read_again()

    assert name_of(found).startswith("un")


@pytest.mark.parametrize("kept", [b"", b"[]", b'{"cut', b"\xff"])
def test_what_is_no_record_of_definitions_is_passed_over(package, kept):
    first = read_again()
    crds._PARSED.write_bytes(kept)

    assert read_again() == first
    assert len(crds._PARSED.read_bytes()) > len(kept)


def test_where_nothing_may_be_kept_definitions_are_read_all_the_same(package):
    (package / "__pycache__").write_text("in the way")

    assert len(read_again()) == 1
