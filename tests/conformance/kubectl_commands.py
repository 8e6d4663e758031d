"""The kubectl commands we vouch for, what each must do, and where a hub differs from a cluster.

`docs/kubectl.md` is written from these tables: `python -m tests.conformance.kubectl_page`.
"""

from typing import Final

from tests.conformance.kubectl_checks import (
    leaves,
    makes,
    omits,
    prints,
    prints_in_order,
    removes,
    says,
    sets,
)
from tests.conformance.kubectl_claims import differs, fails, works


def runs_no_pods(stream: str) -> str:
    """Return the sentence for whoever wants a stream from the Pod `p`."""
    return f"this hub runs no pods: use {stream} on the cluster that runs 'p'"


NO_PODS: Final = "only the cluster that runs a pod has its log"
NO_CONTROLLERS: Final = "a hub holds Deployments as templates and makes no ReplicaSets from them"
NO_PODS_TO_FIND: Final = f"{NO_CONTROLLERS}, so kubectl waits for a pod in vain"
NO_PROSE: Final = "fields and types are there, their descriptions are not"

LOOKING_AROUND: Final = (
    works("version", prints("Server Version: v1.35")),
    works("api-resources", prints("deployments", "deploy", "apps/v1", "ConfigMap")),
    works("api-versions", prints("apps/v1\n", "rbac.authorization.k8s.io/v1\n")),
    works("cluster-info", prints("Kubernetes control plane is running at https://127.0.0.1:")),
    works("config current-context", prints("hub\n")),
    differs(
        "-n NS explain deployments.spec.replicas",
        prints("GROUP:      apps", "KIND:       Deployment", "FIELD: replicas <integer>"),
        why=NO_PROSE,
    ),
    differs(
        "explain pods",
        prints("KIND:       Pod", "spec\t<PodSpec>", "status\t<PodStatus>"),
        why=NO_PROSE,
    ),
    works("get crd", prints("NAME", "clusters.cluster.karmada.io")),
    differs(
        "get clusters",
        sentence="No resources found",
        why="`clusters` is one of the hub's own kinds",
    ),
)

APPLYING: Final = (
    works("create namespace NS", sets("namespaces", "NS", "/status/phase", "Active"), given=None),
    works(
        "-n NS apply -f DIR/d.yaml",
        prints("deployment.apps/web created"),
        sets("deployments", "web", "/spec/replicas", 2),
        sets("deployments", "web", "/spec/strategy/type", "RollingUpdate"),
        given=(),
    ),
    works("-n NS apply -f DIR/pod.yaml", sets("pods", "p", "/status/phase", "Pending"), given=()),
    works(
        "-n NS apply -f DIR/d.yaml",
        prints("deployment.apps/web unchanged"),
        leaves("deployments", "web", "/metadata/generation", 1),
        given=(),
        after="-n NS apply -f DIR/d.yaml",
    ),
    works(
        "-n NS apply -f DIR/d2.yaml",
        prints("deployment.apps/web configured"),
        sets("deployments", "web", "/spec/replicas", 3),
        given=(),
        after="-n NS apply -f DIR/d.yaml",
    ),
    works(
        "-n NS apply --server-side --force-conflicts -f DIR/d.yaml",
        prints("deployment.apps/web serverside-applied"),
        sets("deployments", "web", "/spec/replicas", 2),
        given=("web3",),
    ),
    works(
        "-n NS apply --dry-run=server -f DIR/d.yaml",
        prints("deployment.apps/web configured (server dry run)"),
        leaves("deployments", "web", "/spec/replicas", 3),
        given=("web3",),
    ),
    fails(
        "-n NS diff -f DIR/d.yaml",
        "",
        prints("-  replicas: 3\n+  replicas: 2\n"),
        leaves("deployments", "web", "/spec/replicas", 3),
        given=("web3",),
    ),
    works(
        "-n NS replace -f DIR/d.yaml",
        prints("deployment.apps/web replaced"),
        sets("deployments", "web", "/spec/replicas", 2),
        given=("web3",),
    ),
    works(
        "-n NS apply -f DIR/list.yaml",
        prints("deployment.apps/web created", "configmap/x created"),
        sets("deployments", "web", "/spec/replicas", 2),
        sets("configmaps", "x", "/data/a", "b"),
        given=(),
    ),
    fails("-n NS apply -f DIR/unknown.yaml", 'no matches for kind "Riddle"'),
    works(
        "-n NS edit deploy web",
        prints("deployment.apps/web edited"),
        sets("deployments", "web", "/spec/replicas", 7),
    ),
)

GETTING: Final = (
    works("-n NS get deploy", prints("NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    0/2 ")),
    works("-n NS get deploy web", prints("web    0/2     0            0 ")),
    works("-n NS get deploy web -o yaml", prints("kind: Deployment\n", "  replicas: 2\n")),
    works("-n NS get deploy -o wide", prints("CONTAINERS   IMAGES       SELECTOR", "app=web")),
    works("-n NS get all", prints("pod/p ", "deployment.apps/web ")),
    works("get pods -A", prints("NS ", "p ", "Pending")),
    works(
        "-n NS get deploy,cm", prints("deployment.apps/web ", "configmap/x "), given=("web", "x")
    ),
    works("-n NS get pods -l app=web", prints("w  "), omits("p  "), given=("p", "w")),
    works("get pods -A --field-selector status.phase=Pending", prints("NS ", "p  ")),
    works("-n NS get deploy web -w --request-timeout=2s", prints("web  ")),
    works("get deploy -A -w --request-timeout=2s", prints("NS ", "web  ")),
    works("-n NS get deploy --chunk-size=1", prints("api  ", "web  "), given=("web", "api")),
    works("-n NS get deploy -o name", prints("deployment.apps/web\n")),
    works("-n NS get deploy web -o jsonpath={.spec.replicas}", prints("2")),
    works(
        "-n NS get --raw /apis/apps/v1/namespaces/NS/deployments",
        prints('"kind":"DeploymentList"', '"name":"web"'),
    ),
    works(
        "-n NS get cm --sort-by=.data.a -o custom-columns=N:.metadata.name,A:.data.a",
        prints_in_order("x ", "y "),  # kube-root-ca.crt, which has no such key, comes first
        given=("y", "x"),
    ),
    works(
        "-n NS get deploy web --subresource=scale",
        prints("DESIRED   AVAILABLE", "web    2         0 "),
    ),
    works("-n NS get deploy -L app", prints("APP\n", "web\n")),
    works(
        "-n NS describe deploy web", prints("Replicas:  ", "2 desired", "Image:         nginx:1.27")
    ),
    works("-n NS describe pod p", prints("Status:           Pending", "Image:        busybox")),
    fails("describe node x", 'nodes "x" not found'),
    works("-n NS events", says("No events found in NS namespace.")),
)

CHANGING: Final = (
    works("-n NS scale deploy web --replicas=4", sets("deployments", "web", "/spec/replicas", 4)),
    works(
        "-n NS autoscale deploy web --max=5",
        sets("horizontalpodautoscalers", "web", "/spec/maxReplicas", 5),
        sets("horizontalpodautoscalers", "web", "/spec/scaleTargetRef/name", "web"),
    ),
    works(
        "-n NS expose deploy web --port=80",
        sets("services", "web", "/spec/selector", {"app": "web"}),
        sets("services", "web", "/spec/ports/0/targetPort", 80),
    ),
    works(
        "-n NS set image deploy/web web=nginx:1.28",
        sets("deployments", "web", "/spec/template/spec/containers/0/image", "nginx:1.28"),
    ),
    works(
        "-n NS set env deploy/web A=1",
        sets(
            "deployments",
            "web",
            "/spec/template/spec/containers/0/env",
            [{"name": "A", "value": "1"}],
        ),
    ),
    works(
        "-n NS set resources deploy/web --limits=cpu=200m",
        sets(
            "deployments",
            "web",
            "/spec/template/spec/containers/0/resources",
            {"limits": {"cpu": "200m"}},
        ),
    ),
    works("-n NS label deploy web a=b", sets("deployments", "web", "/metadata/labels/a", "b")),
    works("-n NS label deploy web app-", sets("deployments", "web", "/metadata/labels", None)),
    works(
        "-n NS annotate deploy web a=b", sets("deployments", "web", "/metadata/annotations/a", "b")
    ),
    works(
        '-n NS patch deploy web -p {"spec":{"replicas":5}}',
        sets("deployments", "web", "/spec/replicas", 5),
    ),
    works(
        "-n NS patch deploy web --type=json"
        ' -p [{"op":"replace","path":"/spec/replicas","value":1}]',
        sets("deployments", "web", "/spec/replicas", 1),
    ),
    works(
        '-n NS patch deploy web --type=merge --subresource=status -p {"status":{"replicas":2}}',
        sets("deployments", "web", "/status/replicas", 2),
    ),
    works(
        "-n NS debug p --image=busybox",
        sets("pods", "p", "/spec/ephemeralContainers/0/image", "busybox"),
    ),
)

ROLLING_OUT: Final = (
    fails("-n NS rollout status deploy web --timeout=2s", "timed out waiting"),
    differs(
        "-n NS rollout history deploy web",
        prints("No rollout history found."),
        why=NO_CONTROLLERS,
    ),
    differs(
        "-n NS rollout undo deploy web",
        leaves("deployments", "web", "/metadata/generation", 1),
        sentence='error: no rollout history found for deployment "web"',
        exit_code=1,
        why=NO_CONTROLLERS,
    ),
    works(
        "-n NS rollout restart deploy web",
        prints("deployment.apps/web restarted"),
        sets("deployments", "web", "/metadata/generation", 2),
    ),
    works("-n NS rollout pause deploy web", sets("deployments", "web", "/spec/paused", True)),
)

WAITING: Final = (
    fails(
        "-n NS wait --for=condition=Available deploy/web --timeout=1s",
        "timed out waiting for the condition on deployments/web",
    ),
    works("-n NS wait --for=delete pod/none --timeout=1s"),
    works(
        "-n NS wait --for=jsonpath={.spec.replicas}=1 deploy/web --timeout=1s",
        prints("deployment.apps/web condition met"),
        given=("web1",),
    ),
)

CREATING: Final = (
    works("-n NS create cm x --from-literal=a=b", sets("configmaps", "x", "/data", {"a": "b"})),
    works(
        "-n NS create secret generic s --from-literal=a=b",
        sets("secrets", "s", "/data", {"a": "Yg=="}),
        sets("secrets", "s", "/type", "Opaque"),
    ),
    works(
        "-n NS create secret docker-registry d --docker-username=u --docker-password=p",
        sets("secrets", "d", "/type", "kubernetes.io/dockerconfigjson"),
    ),
    works("-n NS create sa bot", makes("serviceaccounts", "bot")),
    works(
        "-n NS create role r --verb=get --resource=pods",
        sets(
            "roles", "r", "/rules", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
        ),
    ),
    works(
        "-n NS create rolebinding r --role=r --serviceaccount=NS:bot",
        sets("rolebindings", "r", "/subjects/0/name", "bot"),
        sets("rolebindings", "r", "/roleRef/name", "r"),
    ),
    works(
        "create clusterrole NS --verb=get --resource=nodes",
        sets("clusterroles", "NS", "/rules/0/resources", ["nodes"]),
    ),
    works(
        "create clusterrolebinding NS --clusterrole=NS --user=ann",
        sets("clusterrolebindings", "NS", "/subjects/0/name", "ann"),
    ),
    works("-n NS run q --image=busybox", sets("pods", "q", "/spec/containers/0/image", "busybox")),
    works(
        "-n NS create deployment web --image=nginx --replicas=3",
        sets("deployments", "web", "/spec/replicas", 3),
        sets("deployments", "web", "/spec/template/spec/containers/0/image", "nginx"),
        given=(),
    ),
    works(
        "-n NS create job j --image=busybox",
        sets("jobs", "j", "/spec/completions", 1),
    ),
    works(
        "-n NS create cronjob j --image=busybox --schedule=@hourly",
        sets("cronjobs", "j", "/spec/schedule", "@hourly"),
    ),
    works(
        "-n NS create service clusterip c --tcp=80:8080",
        sets("services", "c", "/spec/ports/0/targetPort", 8080),
        sets("services", "c", "/spec/type", "ClusterIP"),
    ),
    works(
        "-n NS create service externalname e --external-name=example.com",
        sets("services", "e", "/spec/externalName", "example.com"),
    ),
    works(
        "-n NS create ingress i --rule=example.com/*=web:80",
        sets("ingresses", "i", "/spec/rules/0/host", "example.com"),
    ),
    works(
        "-n NS create pdb b --selector=app=web --min-available=50%",
        sets("poddisruptionbudgets", "b", "/spec/minAvailable", "50%"),
    ),
    works(
        "-n NS create quota o --hard=pods=3",
        sets("resourcequotas", "o", "/spec/hard", {"pods": "3"}),
    ),
    works(
        "create priorityclass NS --value=1000",
        sets("priorityclasses", "NS", "/value", 1000),
    ),
)

DELETING: Final = (
    works(
        "-n NS delete cm x",
        prints('configmap "x" deleted'),
        removes("configmaps", "x"),
        given=("x",),
    ),
    works("-n NS delete pod q --now", removes("pods", "q"), given=("q",)),
    works("-n NS delete pod p --wait=false", removes("pods", "p")),
    works("-n NS delete -f DIR/d.yaml", removes("deployments", "web")),
    works("-n NS delete secret --all", removes("secrets", "s"), given=("s",)),
    works(
        "-n NS delete cm -l a=b",
        removes("configmaps", "y"),
        makes("configmaps", "x"),
        given=("x", "y"),
    ),
    works("delete ns NS --wait=false", prints('namespace "NS" deleted')),
    works("delete ns NS", removes("namespaces", "NS"), removes("deployments", "web")),
)


PODS_AND_NODES: Final = (
    differs("-n NS logs p", sentence=runs_no_pods("log"), exit_code=1, why=NO_PODS),
    differs(
        "-n NS logs deploy/web",
        sentence="timed out waiting for the condition",
        exit_code=1,
        why=NO_PODS_TO_FIND,
        flags="--pod-running-timeout=1s",
    ),
    works("-n NS logs -l app=web", says("No resources found in NS namespace.")),
    fails("-n NS exec p -- ls", runs_no_pods("exec")),
    fails("-n NS attach p", runs_no_pods("attach")),
    fails("-n NS port-forward pod/p 18080:80", "pod is not running. Current status=Pending"),
    differs(
        "-n NS port-forward deploy/web 18081:80",
        sentence="timed out waiting for the condition",
        exit_code=1,
        why=f"{NO_PODS_TO_FIND}, for a minute",
        flags="--pod-running-timeout=1s",
    ),
    fails("-n NS cp p:/etc/hosts DIR/x", runs_no_pods("exec")),
    fails("top pods -A", "Metrics API not available"),
    fails("top nodes", "Metrics API not available"),
    fails("cordon x", 'nodes "x" not found'),
    fails("drain x", 'nodes "x" not found'),
    fails("taint nodes x a=b:NoSchedule", 'nodes "x" not found'),
)

ACCESS: Final = (
    works("auth can-i list pods -A", prints("yes")),
    works("auth can-i --list", prints("*.*", "[*]")),
    works("auth whoami", prints("kubernetes-admin", "system:masters")),
    works("-n NS create token bot", prints("eyJ"), given=("bot",)),
    fails("certificate approve x", 'certificatesigningrequests.certificates.k8s.io "x" not found'),
)

CHAPTERS: Final = {
    "Looking around": LOOKING_AROUND,
    "Applying": APPLYING,
    "Getting": GETTING,
    "Changing": CHANGING,
    "Rolling out": ROLLING_OUT,
    "Waiting": WAITING,
    "Creating": CREATING,
    "Deleting": DELETING,
    "Pods and nodes": PODS_AND_NODES,
    "Access": ACCESS,
}
"""Every command, in the order of the page."""

COMMANDS: Final = tuple(command for commands in CHAPTERS.values() for command in commands)
