"""The kubectl commands we vouch for on the unified view, with the cluster said in either place."""

from typing import Final

from tests.conformance.kubectl_checks import (
    Check,
    leaves,
    makes,
    omits,
    prints,
    prints_in_order,
    removes,
    sets,
)
from tests.conformance.kubectl_claims import Command, differs, fails, works
from tests.conformance.kubectl_fleet_streams import ACROSS, LOOKING_INTO
from tests.conformance.kubectl_stage import Ran, Stage

IMAGE: Final = "/spec/template/spec/containers/0/image"


def leaves_no_trace(resource: str, name: str) -> Check:
    """The member has the object, and nothing in it knows of the fleet."""

    def check(stage: Stage, _: Ran) -> None:
        found = stage.read(resource, name)
        assert ".clusterspace." not in str(found), found

    return check


GETTING: Final = (
    works("-n NS@ get deploy web@", prints("web@ ", "/2")),
    works("-n NS@ get deploy web@ -o yaml", prints("  name: web@\n", "  namespace: NS@\n")),
    works("-n NS@ get deploy web@ -o wide", prints("CONTAINERS   IMAGES", "nginx:1.27")),
    works(
        "-n NS@ get deploy/web@ cm/x@ -o name", prints("apps/web@\n", "/x@\n"), given=("web", "x")
    ),
    works("-n NS@ get deploy web@ -o jsonpath={.spec.replicas}", prints("2")),
    works(
        "-n NS@ get deploy web@ --subresource=scale",
        prints("DESIRED", "web@ "),
        omits("UP-TO-DATE"),
    ),
    works("-n NS@ get deploy", prints("web@ ")),
    works("-n NS@ get deploy -o wide", prints("web@ ", "nginx:1.27")),
    works(
        "-n NS@ get deploy,cm", prints("deployment.apps/web@ ", "configmap/x@ "), given=("web", "x")
    ),
    works("-n NS@ get all", prints("pod/p@ ", "deployment.apps/web@ ")),
    works("-n NS@ get cm -l a=b", prints("y@ "), omits("x@ "), given=("x", "y")),
    works(
        "-n NS@ get cm --field-selector metadata.name=x@",
        prints("x@ "),
        omits("y@ "),
        given=("x", "y"),
    ),
    works(
        "-n NS@ get cm -l !none --sort-by=.data.a -o custom-columns=N:.metadata.name,A:.data.a",
        prints_in_order("x@ ", "y@ "),
        given=("y", "x"),
    ),
    works("-n NS@ get deploy --chunk-size=1", prints("api@ ", "web@ "), given=("web", "api")),
    works("-n NS@ get deploy web@ -w --request-timeout=2s", prints("web@ ")),
    works("-n NS@ describe deploy web@", prints("Name:                   web@", "2 desired")),
    works("-n NS@ describe pod p@", prints("p@\n", "busybox\n")),
    fails("-n NS@ get deploy none@", 'deployments.apps "none@" not found'),
)

APPLYING: Final = (
    works(
        "-n NS@ apply -f DIR/d.yaml",
        prints("deployment.apps/web@ created"),
        sets("deployments", "web", "/spec/replicas", 2),
        leaves_no_trace("deployments", "web"),
        given=(),
    ),
    works(
        "-n NS@ apply -f DIR/d.yaml",
        prints("deployment.apps/web@ unchanged"),
        leaves("deployments", "web", "/metadata/generation", 1),
        given=(),
        after="-n NS@ apply -f DIR/d.yaml",
    ),
    works(
        "-n NS@ apply -f DIR/d2.yaml",
        prints("deployment.apps/web@ configured"),
        sets("deployments", "web", "/spec/replicas", 3),
        leaves_no_trace("deployments", "web"),
        given=(),
        after="-n NS@ apply -f DIR/d.yaml",
    ),
    works(
        "-n NS@ apply --server-side -f DIR/d.yaml",
        prints("deployment.apps/web@ serverside-applied"),
        sets("deployments", "web", "/spec/replicas", 2),
        leaves_no_trace("deployments", "web"),
        given=(),
    ),
    works(
        "-n NS@ apply --server-side --force-conflicts -f DIR/d2.yaml",
        prints("deployment.apps/web@ serverside-applied"),
        sets("deployments", "web", "/spec/replicas", 3),
        leaves_no_trace("deployments", "web"),
        given=(),
        after="-n NS@ apply -f DIR/d.yaml",
    ),
    works(
        "-n NS@ apply --dry-run=server -f DIR/d.yaml",
        prints("deployment.apps/web@ configured (server dry run)"),
        leaves("deployments", "web", "/spec/replicas", 3),
        given=("web3",),
    ),
    works(
        "-n NS@ apply --dry-run=client -f DIR/d.yaml",
        prints("deployment.apps/web@ configured (dry run)"),
        leaves("deployments", "web", "/spec/replicas", 3),
        given=("web3",),
    ),
    fails(
        "-n NS@ diff -f DIR/d.yaml",
        "",
        prints("-  replicas: 3\n+  replicas: 2\n"),
        leaves("deployments", "web", "/spec/replicas", 3),
        given=("web3",),
    ),
    works("-n NS@ diff -f DIR/d.yaml", given=(), after="-n NS@ apply -f DIR/d.yaml"),
    works(
        "-n NS@ replace -f DIR/d.yaml",
        prints("deployment.apps/web@ replaced"),
        sets("deployments", "web", "/spec/replicas", 2),
        leaves_no_trace("deployments", "web"),
        given=("web3",),
        # kubectl replaces the version it has just read; controllers must not be writing it still.
        after="-n NS@ rollout status deployment/web@",
    ),
    works(
        "-n NS@ replace --force -f DIR/d.yaml",
        prints('deployment.apps "web@" deleted', "deployment.apps/web@ replaced"),
        sets("deployments", "web", "/spec/replicas", 2),
        given=("web3",),
    ),
    works(
        "-n NS@ apply -f DIR/list.yaml",
        prints("deployment.apps/web@ created", "configmap/x@ created"),
        makes("deployments", "web"),
        sets("configmaps", "x", "/data/a", "b"),
        given=(),
    ),
    works(
        "-n NS@ edit deploy web@",
        prints("deployment.apps/web@ edited"),
        sets("deployments", "web", "/spec/replicas", 7),
        leaves_no_trace("deployments", "web"),
    ),
)

CREATING: Final = (
    works(
        "-n NS@ create deployment api@ --image=nginx --replicas=3",
        prints("deployment.apps/api@ created"),
        sets("deployments", "api", "/spec/replicas", 3),
    ),
    works("-n NS@ create cm x@ --from-literal=a=b", sets("configmaps", "x", "/data", {"a": "b"})),
    works(
        "-n NS@ create secret generic s@ --from-literal=a=b",
        sets("secrets", "s", "/data", {"a": "Yg=="}),
    ),
    works("-n NS@ create sa bot@", makes("serviceaccounts", "bot")),
    works("-n NS@ create job j@ --image=busybox", sets("jobs", "j", "/spec/completions", 1)),
    works(
        "-n NS@ create -f DIR/d.yaml",
        prints("deployment.apps/web@ created"),
        leaves_no_trace("deployments", "web"),
        given=(),
    ),
    works(
        "-n NS@ run q@ --image=busybox", sets("pods", "q", "/spec/containers/0/image", "busybox")
    ),
    works("-n NS@ create token bot@", prints("eyJ"), given=("bot",)),
    works(
        "-n NS@ autoscale deploy web@ --max=5",
        sets("horizontalpodautoscalers", "web", "/spec/maxReplicas", 5),
        sets("horizontalpodautoscalers", "web", "/spec/scaleTargetRef/name", "web"),
    ),
    works(
        "-n NS@ expose deploy web@ --port=80",
        sets("services", "web", "/spec/selector", {"app": "web"}),
    ),
)

CHANGING: Final = (
    works("-n NS@ scale deploy web@ --replicas=4", sets("deployments", "web", "/spec/replicas", 4)),
    works(
        "-n NS@ scale deploy web@ --current-replicas=2 --replicas=4",
        sets("deployments", "web", "/spec/replicas", 4),
    ),
    works(
        "-n NS@ set image deploy/web@ web=nginx:1.28",
        sets("deployments", "web", IMAGE, "nginx:1.28"),
    ),
    works(
        "-n NS@ set env deploy/web@ A=1",
        sets("deployments", "web", "/spec/template/spec/containers/0/env/0/name", "A"),
    ),
    works(
        "-n NS@ set resources deploy/web@ --limits=cpu=200m",
        sets("deployments", "web", "/spec/template/spec/containers/0/resources/limits/cpu", "200m"),
    ),
    works("-n NS@ label deploy web@ a=b", sets("deployments", "web", "/metadata/labels/a", "b")),
    works("-n NS@ label deploy web@ app-", sets("deployments", "web", "/metadata/labels", None)),
    works(
        "-n NS@ annotate deploy web@ a=b",
        sets("deployments", "web", "/metadata/annotations/a", "b"),
    ),
    works(
        '-n NS@ patch deploy web@ -p {"spec":{"replicas":5}}',
        sets("deployments", "web", "/spec/replicas", 5),
    ),
    works(
        '-n NS@ patch deploy web@ --type=merge -p {"spec":{"replicas":5}}',
        sets("deployments", "web", "/spec/replicas", 5),
    ),
    works(
        "-n NS@ patch deploy web@ --type=json"
        ' -p [{"op":"replace","path":"/spec/replicas","value":1}]',
        sets("deployments", "web", "/spec/replicas", 1),
    ),
)

ROLLED_OUT: Final = "-n NS@ rollout status deploy web@ --timeout=20s"
TWICE: Final = f"{ROLLED_OUT}; -n NS@ set image deploy/web@ web=nginx:1.28; {ROLLED_OUT}"
ROLLING_OUT: Final = (
    works(
        "-n NS@ rollout history deploy web@",
        prints("deployment.apps/web@", "REVISION"),
        after=ROLLED_OUT,
    ),
    works(
        "-n NS@ rollout undo deploy web@",
        prints("deployment.apps/web@ rolled back"),
        sets("deployments", "web", IMAGE, "nginx:1.27"),
        leaves_no_trace("deployments", "web"),
        after=TWICE,
    ),
    works(
        "-n NS@ rollout restart deploy web@",
        prints("deployment.apps/web@ restarted"),
        leaves_no_trace("deployments", "web"),
    ),
    works("-n NS@ rollout pause deploy web@", sets("deployments", "web", "/spec/paused", True)),
    works("-n NS@ rollout status deploy web@ --timeout=20s", prints("successfully rolled out")),
    works(
        "-n NS@ wait --for=condition=Available deploy/web@ --timeout=20s", prints("condition met")
    ),
    works("-n NS@ wait --for=delete pod/none@ --timeout=5s"),
)

DELETING: Final = (
    works(
        "-n NS@ delete cm x@",
        prints('configmap "x@" deleted'),
        removes("configmaps", "x"),
        given=("x",),
    ),
    works("-n NS@ delete deploy web@", removes("deployments", "web")),
    works("-n NS@ delete -f DIR/d.yaml", removes("deployments", "web")),
    works("-n NS@ delete pod p@ --now", removes("pods", "p")),
    fails("-n NS@ delete cm none@", 'configmaps "none@" not found'),
)

OF_THE_FLEET: Final = (
    works(
        "get deploy -A",
        prints("CLUSTER", "NS ", "web ", "web.clusterspace.east ", "web.clusterspace.west "),
    ),
    works(
        "get pods -A -o wide",
        prints("CLUSTER", "p.clusterspace.east ", "p.clusterspace.west ", "NODE"),
    ),
    works(
        "-n NS get deploy",
        prints("web ", "karmada ", "web.clusterspace.east ", "web.clusterspace.west "),
    ),
    works(
        "-n NS get deploy --chunk-size=1",
        prints("web ", "web.clusterspace.east ", "web.clusterspace.west "),
    ),
    works(
        "-n NS get cm -l a=b --sort-by=.metadata.name -o name",
        prints("configmap/y\nconfigmap/y.clusterspace.east\nconfigmap/y.clusterspace.west\n"),
        given=("x", "y"),
    ),
    works(
        "-n NS get cm -l a=b,clusterspace.io/cluster=east -o name",
        prints("configmap/y.clusterspace.east\n"),
        omits("west"),
        given=("x", "y"),
    ),
    works(
        "-n NS get cm -l a=b,clusterspace.io/cluster!=karmada -L clusterspace.io/cluster",
        prints("y.clusterspace.east ", "y.clusterspace.west "),
        given=("x", "y"),
    ),
    works(
        "-n NS delete cm -l a=b,clusterspace.io/cluster=east",
        prints('"y.clusterspace.east" deleted'),
        omits("west"),
        given=("x", "y"),
    ),
    works(
        "-n NS get cm --field-selector data.a=c",
        prints("y.clusterspace.east ", "y.clusterspace.west "),
        omits("x."),
        given=("x", "y"),
    ),
    works("get nodes", prints("east-node-0.clusterspace.east ", "west-node-0.clusterspace.west ")),
    works(
        "describe node east-node-0.clusterspace.east",
        prints("Name:               east-node-0.clusterspace.east"),
    ),
    works("get ns NS", prints("NS ", "Active")),
    works("get clusters", prints("east ", "west ")),
    differs(
        "-n NS delete cm -l a=b",
        prints('"y" deleted'),
        omits("clusterspace"),
        makes("configmaps", "y"),
        given=("x", "y"),
        why="of the hub; a warning counts what members have",
        sentence="2 on members are left alone (east: 1, west: 1)",
    ),
    differs(
        "-n NS delete deploy --all",
        prints('"web" deleted'),
        omits("clusterspace"),
        makes("deployments", "web"),
        why="of the hub; a warning counts what members have",
        sentence="2 on members are left alone (east: 1, west: 1)",
    ),
    differs(
        "delete pods -l app=p -A",
        omits("clusterspace.east"),
        makes("pods", "p"),
        why="of the hub; a warning counts what members have",
        sentence="left alone",
    ),
    Command(
        "-n NS apply --prune -l app=web -f DIR/kept.yaml",
        (
            prints("configmap/kept unchanged", "configmap/stale pruned"),
            omits("clusterspace"),
            makes("deployments", "web"),
        ),
        after="-n NS apply -f DIR/both.yaml",
        sentence="2 on members are left alone (east: 1, west: 1)",
        differs="prunes on the hub; a warning counts what members have",
    ),
    works(
        "-n NS apply -f DIR/policy.yaml",
        prints("propagationpolicy.policy.karmada.io/web unchanged"),
        after="-n NS apply -f DIR/policy.yaml",
    ),
    works(
        "-n NS apply --server-side -f DIR/policy.yaml",
        prints("propagationpolicy.policy.karmada.io/web serverside-applied"),
        after="-n NS apply -f DIR/policy.yaml",
    ),
    differs(
        "-n NS run q --image=busybox",
        prints("pod/q created"),
        removes("pods", "q"),
        why="is a template on the hub, which runs nothing",
        sentence="it stays Pending until a policy places it",
    ),
    works(
        "-n NS.clusterspace.east delete deploy --all",
        prints('"web" deleted'),
        removes("deployments", "web"),
    ),
    works(
        "api-resources", prints("deployments", "apps/v1", "clusters", "cluster.karmada.io/v1alpha1")
    ),
    works("api-versions", prints("apps/v1\n", "cluster.karmada.io/v1alpha1\n")),
    works(
        "explain deployments.spec.replicas",
        prints("KIND:       Deployment", "FIELD: replicas <integer>"),
    ),
    works("version", prints("Server Version: v1.35")),
    works("auth can-i list pods -A", prints("yes")),
    works("auth can-i get pods/p.clusterspace.east -n NS", prints("yes")),
    works("auth can-i create deployments -n NS.clusterspace.west", prints("yes")),
    works("auth whoami", prints("kubernetes-admin")),
    fails(
        "-n NS get deploy web.clusterspace.nowhere", "there is no cluster 'nowhere' in the fleet"
    ),
    fails(
        "-n NS.clusterspace.west get deploy web.clusterspace.east",
        "names two clusters: east in the name web.clusterspace.east, and west in the namespace",
    ),
    *ACROSS,
)
"""Commands about all clusters at once, or about how clusters are said."""

CHAPTERS: Final = {
    "Getting": GETTING,
    "Applying": APPLYING,
    "Creating": CREATING,
    "Changing": CHANGING,
    "Rolling out": ROLLING_OUT,
    "Deleting": DELETING,
    "Looking into": LOOKING_INTO,
}
"""Commands about one object, each tried with the cluster in either place."""

COMMANDS: Final[tuple[Command, ...]] = tuple(
    command for commands in CHAPTERS.values() for command in commands
)
