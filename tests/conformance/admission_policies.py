"""Admission policies as a table, and how a server answers to them.

Every case has a namespace, and unless it says otherwise a policy about new ConfigMaps in it and a
binding that denies. All policies are written first, then every request is made: a kube-apiserver
takes a moment until a policy is in force.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest

Json = dict[str, Any]

ADMISSION: Final = "/apis/admissionregistration.k8s.io"
JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"

_WARNING: Final = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_VOLATILE: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_TRIES: Final = 100


@dataclass(frozen=True)
class Ask:
    """One request; `_NS_` in its path or body is the namespace of its case."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON


@dataclass(frozen=True)
class Case:
    """A policy, what binds it, and requests that meet it."""

    name: str
    spec: Json
    asks: Sequence[Ask] = ()
    match: Json = field(default_factory=dict[str, Any])
    bindings: Sequence[Json] | None = None
    before: Sequence[Ask] = ()
    is_mutating: bool = False

    @property
    def namespace(self) -> str:
        return f"c-{self.name}"

    def objects(self) -> list[Ask]:
        """Return the writes of the policy and its bindings."""
        kind = "Mutating" if self.is_mutating else "Validating"
        version = "v1beta1" if self.is_mutating else "v1"
        match = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "resourceRules": [rule("", "v1", ["configmaps"], ["CREATE"])],
        }
        spec = {"matchConstraints": match | self.match} | self.spec
        if self.is_mutating:
            spec = {"reinvocationPolicy": "Never"} | spec
        head = {"apiVersion": f"admissionregistration.k8s.io/{version}"}
        policy = {
            **head,
            "kind": f"{kind}AdmissionPolicy",
            "metadata": {"name": f"p-{self.name}"},
            "spec": spec,
        }
        asks = [Ask("POST", f"{ADMISSION}/{version}/{kind.lower()}admissionpolicies", policy)]
        default: Json = {} if self.is_mutating else {"validationActions": ["Deny"]}
        for index, given in enumerate([{}] if self.bindings is None else self.bindings):
            binding = {
                **head,
                "kind": f"{kind}AdmissionPolicyBinding",
                "metadata": {"name": f"b-{self.name}-{index}"},
                "spec": {"policyName": f"p-{self.name}"} | default | given,
            }
            path = f"{ADMISSION}/{version}/{kind.lower()}admissionpolicybindings"
            asks.append(Ask("POST", path, binding))
        return asks


def rule(
    group: str, version: str, resources: list[str], operations: list[str], **more: Any
) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        **more,
    }


def config_map(name: str = "m", data: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"a": "1"} if data is None else data,
    }


MAPS: Final = "/api/v1/namespaces/_NS_/configmaps"


def new(name: str = "m", data: Json | None = None, query: str = "", **metadata: Any) -> Ask:
    return Ask("POST", MAPS + query, config_map(name, data, **metadata))


def deployment(name: str = "web", replicas: int = 1, image: str = "nginx:1") -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
        },
    }


DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/_NS_/deployments"


def check(expression: str, **more: Any) -> Json:
    return {"validations": [{"expression": expression, **more}]}


def matching(*rules: Json, **more: Any) -> Json:
    return {"resourceRules": list(rules), **more}


ON_CHANGE: Final = matching(rule("", "v1", ["configmaps"], ["UPDATE"]))
ON_DELETE: Final = matching(rule("", "v1", ["configmaps"], ["DELETE"]))
ON_DEPLOYMENTS: Final = matching(rule("apps", "v1", ["deployments"], ["CREATE", "UPDATE"]))
PARAM_KIND: Final = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}


def by_name(name: str, action: str = "Deny", **more: Any) -> Json:
    return {"paramRef": {"name": name, "parameterNotFoundAction": action, **more}}


PARAMS: Final = (
    Ask("POST", MAPS, config_map("limits", {"most": "3"}, labels={"kind": "limits"})),
    Ask("POST", MAPS, config_map("others", {"most": "1"}, labels={"kind": "limits"})),
)
ONE_MAP: Final = (new("old", labels={"tier": "gold"}),)

NUMBERS: Final = "[" + ",".join(str(each) for each in range(200)) + "]"
DEAR: Final = f"{NUMBERS}.all(x, {NUMBERS}.all(y, {NUMBERS}.all(z, x + y + z >= 0)))"

VALIDATING: Final[Sequence[Case]] = (
    # -- what a denial says
    Case("plain", check("false"), [new()]),
    Case("passes", check("object.data.a == '1'"), [new()]),
    Case("message", check("false", message=" not like this "), [new()]),
    Case("computed", check("false", messageExpression="'no ' + object.metadata.name"), [new()]),
    Case(
        "computed-fails",
        check("false", message="written", messageExpression="object.data.none + ''"),
        [new()],
    ),
    Case("computed-lines", check("false", message="one", messageExpression="'a\\nb'"), [new()]),
    Case("computed-blank", check("false", messageExpression="'  '"), [new()]),
    Case("forbidden", check("false", reason="Forbidden"), [new()]),
    Case("too-large", check("false", reason="RequestEntityTooLarge"), [new()]),
    Case(
        "several",
        {
            "validations": [
                {"expression": "true"},
                {"expression": "1 == 2", "message": "second"},
                {"expression": "false", "message": "third"},
            ]
        },
        [new()],
    ),
    # -- errors
    Case("no-key", check("object.data.none == 'x'"), [new()]),
    Case("no-key-ignored", check("object.data.none == 'x'") | {"failurePolicy": "Ignore"}, [new()]),
    Case("false-ignored", check("false") | {"failurePolicy": "Ignore"}, [new()]),
    Case("by-zero", check("1 / size(object.data.a.split('1')[0]) == 1"), [new()]),
    Case("out-of-bounds", check("object.data.a.split(',')[4] == ''"), [new()]),
    Case("no-overload", check("object.data.a > 1"), [new()]),
    Case("bad-quantity", check("quantity(object.data.a + '!').isInteger()"), [new()]),
    # -- actions
    Case(
        "warn", check("false", message="mind"), [new()], bindings=[{"validationActions": ["Warn"]}]
    ),
    Case("audit", check("false"), [new()], bindings=[{"validationActions": ["Audit"]}]),
    Case(
        "warn-and-audit",
        check("object.data.none == ''"),
        [new()],
        bindings=[{"validationActions": ["Warn", "Audit"]}],
    ),
    Case(
        "two-bindings",
        check("false", message="twice"),
        [new()],
        bindings=[{"validationActions": ["Warn"]}, {"validationActions": ["Deny"]}],
    ),
    Case("unbound", check("false"), [new()], bindings=[]),
    # -- variables
    Case(
        "variables",
        {
            "variables": [
                {"name": "a", "expression": "object.data.a"},
                {"name": "doubled", "expression": "variables.a + variables.a"},
            ],
            **check("variables.doubled == '11'", messageExpression="variables.doubled"),
        },
        [new(), new("n", {"a": "2"})],
    ),
    Case(
        "variable-fails",
        {
            "variables": [{"name": "gone", "expression": "object.data.none"}],
            **check("variables.gone == ''"),
        },
        [new()],
    ),
    Case(
        "variable-unused",
        {
            "variables": [{"name": "gone", "expression": "object.data.none"}],
            **check("object.data.a == '1' || variables.gone == ''"),
        },
        [new(), new("n", {"a": "2"})],
    ),
    # -- parameters
    Case(
        "params",
        PARAM_KIND | check("int(object.data.a) <= int(params.data.most)"),
        [new(), new("n", {"a": "5"})],
        bindings=[by_name("limits")],
        before=PARAMS,
    ),
    Case(
        "params-selected",
        PARAM_KIND
        | check(
            "int(object.data.a) <= int(params.data.most)",
            messageExpression="'more than ' + params.data.most",
        ),
        [new(), new("n", {"a": "2"})],
        bindings=[
            {
                "paramRef": {
                    "selector": {"matchLabels": {"kind": "limits"}},
                    "parameterNotFoundAction": "Deny",
                }
            }
        ],
        before=PARAMS,
    ),
    Case("params-gone", PARAM_KIND | check("false"), [new()], bindings=[by_name("none")]),
    Case(
        "params-gone-allowed",
        PARAM_KIND | check("false"),
        [new()],
        bindings=[by_name("none", "Allow")],
    ),
    Case(
        "params-gone-ignored",
        PARAM_KIND | check("false") | {"failurePolicy": "Ignore"},
        [new()],
        bindings=[by_name("none")],
    ),
    Case("params-null", PARAM_KIND | check("params != null", message="none given"), [new()]),
    Case(
        "params-unknown",
        {"paramKind": {"apiVersion": "example.com/v1", "kind": "Nothing"}} | check("false"),
        [new()],
        bindings=[by_name("x")],
    ),
    Case(
        "params-elsewhere",
        PARAM_KIND | check("params.data.most == '3'", messageExpression="params.metadata.name"),
        [new()],
        bindings=[by_name("others", namespace="c-params")],
    ),
    Case(
        "params-typed",
        PARAM_KIND | check("params.kind == 'ConfigMap' && params.apiVersion == 'v1' && false"),
        [new()],
        bindings=[by_name("limits")],
        before=PARAMS,
    ),
    # -- conditions
    Case(
        "condition",
        check("false")
        | {"matchConditions": [{"name": "named", "expression": "object.metadata.name == 'n'"}]},
        [new(), new("n")],
    ),
    Case(
        "condition-fails",
        check("false")
        | {"matchConditions": [{"name": "broken", "expression": "object.data.none == ''"}]},
        [new()],
    ),
    Case(
        "conditions-fail",
        check("false")
        | {
            "matchConditions": [
                {"name": "broken", "expression": "object.data.none == ''"},
                {"name": "too", "expression": "object.data.nothing == ''"},
            ]
        },
        [new()],
    ),
    Case(
        "condition-ignored",
        check("false")
        | {
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "broken", "expression": "object.data.none == ''"}],
        },
        [new()],
    ),
    Case(
        "condition-false-wins",
        check("false")
        | {
            "matchConditions": [
                {"name": "broken", "expression": "object.data.none == ''"},
                {"name": "not", "expression": "false"},
            ]
        },
        [new()],
    ),
    Case(
        "condition-params",
        PARAM_KIND
        | check("false")
        | {"matchConditions": [{"name": "p", "expression": "params.data.most == object.data.a"}]},
        [new(), new("n", {"a": "3"})],
        bindings=[by_name("limits")],
        before=PARAMS,
    ),
    # -- what is matched
    Case(
        "update",
        check("object.data.a == oldObject.data.a", message="a stays"),
        [
            new(),
            Ask("PATCH", f"{MAPS}/m", {"data": {"b": "2"}}, MERGE),
            Ask("PATCH", f"{MAPS}/m", {"data": {"a": "2"}}, MERGE),
            Ask("PUT", f"{MAPS}/m", config_map("m", {"a": "3"})),
        ],
        ON_CHANGE,
    ),
    Case(
        "delete",
        check(
            "oldObject.metadata.labels.tier != 'gold'", messageExpression="string(object == null)"
        ),
        [Ask("DELETE", f"{MAPS}/old")],
        ON_DELETE,
        before=ONE_MAP,
    ),
    Case(
        "delete-object",
        check("object.metadata.name == ''"),
        [Ask("DELETE", f"{MAPS}/old")],
        ON_DELETE,
        before=ONE_MAP,
    ),
    Case(
        "delete-has",
        check("has(object.metadata)"),
        [Ask("DELETE", f"{MAPS}/old")],
        ON_DELETE,
        before=ONE_MAP,
    ),
    Case(
        "delete-collection",
        check("oldObject.metadata.name == 'kube-root-ca.crt'"),
        [Ask("DELETE", f"{MAPS}?labelSelector=tier%3Dgold")],
        ON_DELETE,
        before=ONE_MAP,
    ),
    Case(
        "anything",
        check("object.kind != 'Secret'"),
        [
            new(),
            Ask(
                "POST",
                "/api/v1/namespaces/_NS_/secrets",
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
            ),
        ],
        matching(rule("*", "*", ["*"], ["*"])),
    ),
    Case(
        "excluded",
        check("false"),
        [
            new(),
            Ask(
                "POST",
                "/api/v1/namespaces/_NS_/secrets",
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
            ),
        ],
        matching(
            rule("", "*", ["*"], ["CREATE"]),
            excludeResourceRules=[rule("", "v1", ["secrets"], ["*"])],
        ),
    ),
    Case(
        "cluster-scope",
        check("false"),
        [new()],
        matching(rule("*", "*", ["*"], ["*"], scope="Cluster", resourceNames=["m"])),
    ),
    Case(
        "namespaced-scope",
        check("false"),
        [new()],
        matching(rule("*", "*", ["configmaps"], ["*"], scope="Namespaced")),
    ),
    Case(
        "webhook-configurations",
        check("false"),
        [
            Ask(
                "POST",
                f"{ADMISSION}/v1/validatingwebhookconfigurations",
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": "guarded"},
                },
            ),
        ],
        matching(
            rule(
                "admissionregistration.k8s.io",
                "v1",
                ["validatingwebhookconfigurations"],
                ["CREATE"],
                resourceNames=["guarded"],
            )
        ),
    ),
    Case(
        "policies",
        check("false"),
        [
            Ask(
                "POST",
                f"{ADMISSION}/v1/validatingadmissionpolicybindings?dryRun=All",
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingAdmissionPolicyBinding",
                    "metadata": {"name": "bound"},
                    "spec": {"policyName": "p-policies", "validationActions": ["Deny"]},
                },
            ),
        ],
        matching(
            rule(
                "admissionregistration.k8s.io",
                "v1",
                ["*"],
                ["CREATE"],
                resourceNames=["bound"],
            )
        ),
    ),
    Case(
        "names",
        check("false"),
        [new(), new("n")],
        matching(rule("", "v1", ["configmaps"], ["CREATE"], resourceNames=["n"])),
    ),
    Case(
        "objects",
        check("false"),
        [new(), new("n", labels={"tier": "gold"})],
        {"objectSelector": {"matchLabels": {"tier": "gold"}}},
    ),
    Case(
        "objects-old",
        check("false"),
        [Ask("PATCH", f"{MAPS}/old", {"metadata": {"labels": None}}, MERGE)],
        ON_CHANGE | {"objectSelector": {"matchLabels": {"tier": "gold"}}},
        before=ONE_MAP,
    ),
    Case(
        "namespaces-not",
        check("false"),
        [new()],
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}},
    ),
    Case(
        "bound-not",
        check("false"),
        [new(), new("n", labels={"tier": "gold"})],
        bindings=[{"matchResources": {"objectSelector": {"matchLabels": {"tier": "gold"}}}}],
    ),
    Case(
        "bound-rules",
        check("false"),
        [new()],
        matching(rule("", "v1", ["*"], ["*"])),
        bindings=[{"matchResources": {"resourceRules": [rule("", "v1", ["secrets"], ["*"])]}}],
    ),
    Case(
        "equivalent",
        check(
            "object.spec.targetCPUUtilizationPercentage < 80",
            messageExpression="request.kind.version + ' ' + request.requestKind.version",
        ),
        [
            Ask(
                "POST",
                "/apis/autoscaling/v2/namespaces/_NS_/horizontalpodautoscalers",
                {
                    "apiVersion": "autoscaling/v2",
                    "kind": "HorizontalPodAutoscaler",
                    "metadata": {"name": "h"},
                    "spec": {
                        "maxReplicas": 3,
                        "scaleTargetRef": {
                            "apiVersion": "apps/v1",
                            "kind": "Deployment",
                            "name": "web",
                        },
                        "metrics": [
                            {
                                "type": "Resource",
                                "resource": {
                                    "name": "cpu",
                                    "target": {"type": "Utilization", "averageUtilization": 90},
                                },
                            }
                        ],
                    },
                },
            )
        ],
        matching(rule("autoscaling", "v1", ["horizontalpodautoscalers"], ["CREATE"])),
    ),
    Case(
        "exact",
        check("false"),
        [
            Ask(
                "POST",
                "/apis/autoscaling/v2/namespaces/_NS_/horizontalpodautoscalers",
                {
                    "apiVersion": "autoscaling/v2",
                    "kind": "HorizontalPodAutoscaler",
                    "metadata": {"name": "h"},
                    "spec": {
                        "maxReplicas": 3,
                        "scaleTargetRef": {
                            "apiVersion": "apps/v1",
                            "kind": "Deployment",
                            "name": "web",
                        },
                    },
                },
            )
        ],
        matching(
            rule("autoscaling", "v1", ["horizontalpodautoscalers"], ["CREATE"]), matchPolicy="Exact"
        ),
    ),
    Case(
        "status",
        check("object.status.replicas < 5"),
        [
            Ask("PATCH", f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 7}}, MERGE),
            Ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 7}}, MERGE),
        ],
        matching(rule("apps", "v1", ["deployments/status"], ["UPDATE"])),
        before=[Ask("POST", DEPLOYMENTS, deployment())],
    ),
    Case(
        "scale",
        check(
            "object.spec.replicas < 5", messageExpression="object.kind + ' ' + request.subResource"
        ),
        [
            Ask("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 3}}, MERGE),
            Ask("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 7}}, MERGE),
        ],
        matching(rule("apps", "v1", ["deployments/scale"], ["UPDATE"])),
        before=[Ask("POST", DEPLOYMENTS, deployment())],
    ),
    Case(
        "deployments",
        check(
            "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))",
            message="no latest",
        )
        | {"variables": [{"name": "most", "expression": "5"}]},
        [
            Ask("POST", DEPLOYMENTS, deployment()),
            Ask("POST", DEPLOYMENTS, deployment("late", image="nginx:latest")),
        ],
        ON_DEPLOYMENTS,
    ),
    # -- what expressions see
    Case(
        "request",
        check(
            "false",
            messageExpression="[request.operation, request.resource.resource, request.kind.kind, "
            "request.name, request.namespace, string('system:masters' in request.userInfo.groups), "
            "string(request.dryRun), string(request.options.kind)].join(' ')",
        ),
        [new(), new("n", query="?dryRun=All")],
    ),
    Case("request-sub", check("request.subResource == ''"), [new()]),
    Case(
        "request-manager",
        check("request.options.fieldManager != 'me'"),
        [new(), new("n", query="?fieldManager=me")],
    ),
    Case(
        "namespace",
        check("namespaceObject.metadata.labels['kubernetes.io/metadata.name'] != '_NS_'"),
        [new()],
    ),
    Case(
        "authorized",
        check(
            "authorizer.group('apps').resource('deployments').namespace('default')"
            ".check('create').allowed() && false"
        ),
        [new()],
    ),
    Case(
        "authorizer-account",
        check(
            "authorizer.serviceAccount('default', 'nobody')"
            ".group('').resource('secrets').check('list').allowed()"
        ),
        [new()],
    ),
    Case(
        "authorizer-resource",
        check("authorizer.requestResource.check('create').allowed()"),
        [new()],
    ),
    Case("authorizer-path", check("authorizer.path('/healthz').check('get').allowed()"), [new()]),
    Case(
        "authorizer-dear",
        check(
            "authorizer.requestResource.check('a').allowed() && "
            "authorizer.requestResource.check('b').allowed() && "
            "authorizer.requestResource.check('c').allowed()"
        ),
        [new()],
    ),
    Case(
        "functions",
        check(
            "quantity('1Gi').isGreaterThan(quantity('1Mi')) && "
            "url('https://a.b/c').getHost() == 'a.b' && "
            "ip('10.0.0.1').family() == 4 && "
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && "
            "'ab12'.find('[0-9]+') == '12' && "
            "!format.dns1123Label().validate(object.metadata.name).hasValue() && "
            "object.?data.?none.orValue('x') == 'x'"
        ),
        [new(), new("N", {})],
    ),
    Case(
        "sees-defaults",
        check(
            "object.spec.strategy.type == 'RollingUpdate' && "
            "object.spec.progressDeadlineSeconds == 600 && "
            "!has(object.spec.paused)"
        ),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    Case(
        "sees-metadata",
        check(
            "has(object.metadata.uid) && "
            "has(object.metadata.creationTimestamp) && "
            "object.metadata.namespace == '_NS_' && "
            "has(object.metadata.managedFields)"
        ),
        [new()],
    ),
    Case(
        "apply",
        check("object.data.a != '2'"),
        [
            Ask("PATCH", f"{MAPS}/m?fieldManager=me", config_map(), APPLY),
            Ask("PATCH", f"{MAPS}/m?fieldManager=me", config_map(data={"a": "2"}), APPLY),
        ],
        matching(rule("", "v1", ["configmaps"], ["*"])),
    ),
    Case("invalid-first", check("false"), [new("Not_Valid")]),
    Case(
        "optional",
        check(
            "request.userInfo.extra[?'example.com/none'][0].orValue('') == '' && "
            "object.?data[?'a'].orValue('') == '1' && object.?data['none'].hasValue()"
        ),
        [new()],
    ),
    # -- audit annotations
    Case(
        "annotated",
        {
            "auditAnnotations": [
                {"key": "who", "valueExpression": "'it was ' + object.metadata.name"}
            ]
        },
        [new()],
    ),
    Case(
        "annotated-null", {"auditAnnotations": [{"key": "who", "valueExpression": "null"}]}, [new()]
    ),
    Case(
        "annotation-fails",
        {"auditAnnotations": [{"key": "who", "valueExpression": "'' + object.data.none"}]},
        [new()],
    ),
    # -- cost
    Case("dear", check(DEAR), [new()]),
    Case("dear-ignored", check(DEAR) | {"failurePolicy": "Ignore"}, [new()]),
    # -- policies that are refused
    Case("bad-undeclared", check("objct.data.a == '1'"), bindings=[]),
    Case("bad-syntax", check("object.data.a =="), bindings=[]),
    Case("bad-type", check("1 + 'a' == 2"), bindings=[]),
    Case("bad-not-bool", check("'text'"), bindings=[]),
    Case("bad-dyn", check("object.data.a"), bindings=[]),
    Case("bad-request-field", check("request.object.kind == 'x'"), bindings=[]),
    Case("bad-no-params", check("params.data.a == ''"), bindings=[]),
    Case("bad-mixed", check("[request.name, object.data.a].join('') == ''"), bindings=[]),
    Case("bad-mixed-too", check("[object.data.a, request.name].size() == 2"), bindings=[]),
    Case("bad-function", check("object.data.a.nothing()"), bindings=[]),
    Case("bad-message", check("false", messageExpression="1"), bindings=[]),
    Case(
        "bad-message-authorizer",
        check("false", messageExpression="authorizer.path('/').check('get').reason()"),
        bindings=[],
    ),
    Case(
        "bad-variable",
        {
            "variables": [
                {"name": "in", "expression": "1"},
                {"name": "b", "expression": "variables.c"},
            ],
            **check("true"),
        },
        bindings=[],
    ),
    Case(
        "bad-conditions",
        check("true")
        | {
            "matchConditions": [
                {"name": "x", "expression": "true"},
                {"name": "x", "expression": "1"},
                {"name": "", "expression": "variables.a"},
            ]
        },
        bindings=[],
    ),
    Case(
        "bad-annotation",
        {
            "auditAnnotations": [
                {"key": "a b", "valueExpression": "1"},
                {"key": "c", "valueExpression": ""},
            ]
        },
        bindings=[],
    ),
    Case("bad-lines", check("false", message="a\nb", reason="Odd"), bindings=[]),
    Case(
        "bad-kind",
        {"paramKind": {"apiVersion": "a/b/c", "kind": "x y"}, **check("true")},
        bindings=[],
    ),
    Case(
        "bad-binding",
        check("true"),
        bindings=[
            {"validationActions": ["Deny", "Warn", "Deny"]},
            {"validationActions": []},
            {"paramRef": {}},
            {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Sing"}},
        ],
    ),
    Case("bad-empty", {}, bindings=[]),
    Case(
        "bad-names",
        check("true"),
        match=matching(
            rule("", "v1", ["configmaps"], ["CREATE"], resourceNames=["a", "a", "x/y"]),
            matchPolicy="Sometimes",
        ),
        bindings=[],
    ),
)


def apply(expression: str, **more: Any) -> Json:
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return {"mutations": [mutation], **more}


def patch(expression: str, **more: Any) -> Json:
    return {
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        **more,
    }


def mutating(
    name: str, spec: Json, asks: Sequence[Ask] = (), match: Json | None = None, **more: Any
) -> Case:
    return Case(f"m-{name}", spec, asks, match or {}, is_mutating=True, **more)


ADD_B: Final = "[JSONPatch{op: 'add', path: '/data/b', value: '2'}]"
ONE_SIDECAR: Final = (
    "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
    "containers: [Object.spec.template.spec.containers{name: 'side', image: 'side:1'}]}}}}"
)

MUTATING: Final[Sequence[Case]] = (
    mutating("apply", apply("Object{data: {'b': '2'}}"), [new()]),
    mutating(
        "apply-labels",
        apply("Object{metadata: Object.metadata{labels: {'a': object.data.a}}}"),
        [new()],
    ),
    mutating(
        "apply-list", apply(ONE_SIDECAR), [Ask("POST", DEPLOYMENTS, deployment())], ON_DEPLOYMENTS
    ),
    mutating(
        "apply-merges-element",
        apply(ONE_SIDECAR.replace("'side', image", "'main', image")),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "apply-atomic",
        apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "apply-unknown",
        apply("Object{spec: Object.spec{nothing: 1}}"),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "apply-wrong-type",
        apply("Object{spec: Object.spec{replicas: 'many'}}"),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "apply-wrong-name",
        apply("Object{spec: Object.other{replicas: 3}}"),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "apply-replicas",
        apply("Object{spec: Object.spec{replicas: object.spec.replicas + 2}}"),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating("patch", patch(ADD_B), [new()]),
    mutating(
        "patch-escape",
        patch(
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {}}, JSONPatch{op: 'add', "
            "path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: 'x'}]"
        ),
        [new()],
    ),
    mutating(
        "patch-object",
        patch(
            "[JSONPatch{op: 'add', path: '/spec/strategy', "
            "value: Object.spec.strategy{type: 'Recreate'}}]"
        ),
        [Ask("POST", DEPLOYMENTS, deployment())],
        ON_DEPLOYMENTS,
    ),
    mutating(
        "patch-test",
        patch(
            "[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, "
            "JSONPatch{op: 'add', path: '/data/b', value: '2'}]"
        ),
        [new()],
    ),
    mutating("patch-unknown", patch("[JSONPatch{op: 'add', path: '/wrong', value: 1}]"), [new()]),
    *(
        mutating(f"patch-missing-{index}", patch(f"[JSONPatch{{{operation}}}]"), [new()])
        for index, operation in enumerate(
            (
                "op: 'remove', path: '/data/none'",
                "op: 'replace', path: '/data/none', value: 1",
                "op: 'add', path: '/none/b', value: 1",
                "op: 'move', from: '/data/none', path: '/data/b'",
                "op: 'sing', path: '/data/b'",
            )
        )
    ),
    mutating(
        "patch-several",
        {
            "mutations": [
                *patch(ADD_B)["mutations"],
                *patch("[JSONPatch{op: 'add', path: '/data/c', value: object.data.b + '!'}]")[
                    "mutations"
                ],
            ]
        },
        [new()],
    ),
    mutating("error", apply("Object{data: {'b': object.data.none}}"), [new()]),
    mutating(
        "error-ignored",
        apply("Object{data: {'b': object.data.none}}", failurePolicy="Ignore"),
        [new()],
    ),
    mutating(
        "condition",
        apply(
            "Object{data: {'b': '2'}}",
            matchConditions=[{"name": "n", "expression": "object.metadata.name == 'n'"}],
        ),
        [new(), new("n")],
    ),
    mutating(
        "condition-fails",
        apply(
            "Object{data: {'b': '2'}}",
            matchConditions=[{"name": "n", "expression": "object.data.none == ''"}],
        ),
        [new()],
    ),
    mutating(
        "variables",
        apply(
            "Object{data: {'b': variables.twice}}",
            variables=[{"name": "twice", "expression": "object.data.a + object.data.a"}],
        ),
        [new()],
    ),
    mutating(
        "params",
        apply("Object{data: {'b': params.data.most}}", **PARAM_KIND),
        [new()],
        bindings=[by_name("limits")],
        before=PARAMS,
    ),
    mutating(
        "params-gone",
        apply("Object{data: {'b': params.data.most}}", **PARAM_KIND),
        [new()],
        bindings=[by_name("none")],
    ),
    mutating(
        "params-unknown",
        apply("Object{}", paramKind={"apiVersion": "example.com/v1", "kind": "Nothing"}),
        [new()],
        bindings=[by_name("none")],
    ),
    mutating(
        "update",
        apply("Object{metadata: Object.metadata{annotations: {'was': oldObject.data.a}}}"),
        [new(), Ask("PATCH", f"{MAPS}/m", {"data": {"a": "2"}}, MERGE)],
        ON_CHANGE,
    ),
    mutating(
        "unborn",
        apply(
            "Object{data: {'uid': string(has(object.metadata.uid)), "
            "'time': string(has(object.metadata.creationTimestamp))}}"
        ),
        [new()],
    ),
    mutating(
        "dry-run", apply("Object{data: {'b': string(request.dryRun)}}"), [new(query="?dryRun=All")]
    ),
    mutating("dear", apply("Object{data: {'b': string(" + DEAR + ")}}"), [new()]),
    mutating("bad-return", apply("{'data': 1}"), bindings=[]),
    mutating("bad-patch-return", patch("[{'op': 'add'}]"), bindings=[]),
    mutating("bad-type", apply("Thing{a: 1}"), bindings=[]),
    mutating("bad-op", patch("[JSONPatch{op: 1, path: '/a'}]"), bindings=[]),
    mutating(
        "bad-both",
        {
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": ADD_B},
                    "applyConfiguration": {"expression": "Object{}"},
                },
                {"patchType": "JSONPatch"},
                {"patchType": "Other"},
            ]
        },
        bindings=[],
    ),
    mutating(
        "bad-operations",
        apply("Object{}"),
        match=matching(rule("", "v1", ["configmaps"], ["DELETE"])),
        bindings=[],
    ),
    mutating("bad-empty", {"mutations": [], "reinvocationPolicy": "Maybe"}, bindings=[]),
)


def _placed(value: Any, namespace: str) -> Any:
    return json.loads(json.dumps(value).replace("_NS_", namespace))


async def ask_of(connection: Connection, ask: Ask, namespace: str) -> Json:
    body = None if ask.body is None else json.dumps(_placed(ask.body, namespace)).encode()
    path = ask.path.replace("_NS_", namespace)
    headers = (("Content-Type", ask.content_type), ("Accept", JSON))
    return shown_of(
        await connection.exchange(ApiRequest(ask.method, path, headers=headers, body=body))
    )


def shown_of(answer: Answer) -> Json:
    """Return what an answer says, without what differs from one run to the next."""
    body: Json = json.loads(answer.body)
    warnings = _WARNING.findall(answer.headers.get("warning", ""))
    shown: Json = {"code": answer.status, "warnings": [each for each in warnings if _is_ours(each)]}
    if body.get("kind") == "Status" and body.get("status") == "Failure":
        shown |= {key: body.get(key) for key in ("reason", "message", "details")}
        return shown
    if answer.status < 300 and body.get("kind") in ("ConfigMap", "Deployment", "Scale"):
        metadata = body["metadata"]
        shown["object"] = {
            "metadata": {k: v for k, v in metadata.items() if k not in _VOLATILE},
            **{k: v for k, v in body.items() if k in ("data", "spec")},
        }
    return shown


def _is_ours(warning: str) -> bool:
    return "is stored" not in warning


async def play(connection: Connection, cases: Sequence[Case]) -> Mapping[str, list[Json]]:
    """Return every answer of a server to the cases: to the policies first, then to the requests."""
    answers: dict[str, list[Json]] = {case.name: [] for case in cases}
    for case in cases:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}}
        await ask_of(connection, Ask("POST", "/api/v1/namespaces", space), case.namespace)
        for ask in case.before:
            said = await ask_of(connection, ask, case.namespace)
            assert said["code"] == 201, said
    for case in cases:
        for ask in case.objects():
            said = await ask_of(connection, ask, case.namespace)
            answers[case.name].append({k: v for k, v in said.items() if k != "object"})
    await _until_in_force(connection, cases[-1].is_mutating)
    for case in cases:
        for ask in case.asks:
            answers[case.name].append(await ask_of(connection, ask, case.namespace))
    return answers


async def _until_in_force(connection: Connection, is_mutating: bool) -> None:
    """Wait until a policy that was written last is obeyed, and with it those before."""
    if is_mutating:
        spec = {
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": "[JSONPatch{op: 'add', path: '/data/z', value: 'z'}]"
                    },
                }
            ]
        }
        case = Case("marker-m", spec, is_mutating=True)
    else:
        case = Case("marker", check("false"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}}
    await ask_of(connection, Ask("POST", "/api/v1/namespaces", space), case.namespace)
    for ask in case.objects():
        await ask_of(connection, ask, case.namespace)
    for _ in range(_TRIES):
        said = await ask_of(connection, new("probe", query="?dryRun=All"), case.namespace)
        if said["code"] == 422 or "z" in said.get("object", {}).get("data", {}):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the policy of {case.name} never came into force")
