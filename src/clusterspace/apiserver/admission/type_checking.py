"""Type checks of ValidatingAdmissionPolicies: what is wrong if the objects are what rules name.

Expressions see objects of any kind, so that a policy with a misspelt field is accepted and fails
when it is evaluated. For kinds that a policy names, its expressions are compiled again with their
types, and what that finds is written to the policy's status. In Kubernetes a controller of
kube-controller-manager does it; one beside this server finds nothing left to do.
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.configurations import GROUP
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.identity.following import find_object, follow
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import SELF, edit_own, write_of
from clusterspace.kube.cel.requests import ANYTHING, Declarations
from clusterspace.kube.cel.schema_types import type_of
from clusterspace.kube.cel.types import DYN, Field, Type
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import parse_api_version
from clusterspace.kube.schemas.model import OBJECT_META

_POLICIES: Final = "validatingadmissionpolicies"
_MANAGER: Final = "validatingadmissionpolicy-status"
_MOST_TYPES: Final = 10
"""Kinds that a policy is checked with, as in Kubernetes."""


class PolicyTypeChecks:
    """Follows policies and writes what their type checks found to their status."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._policies = hub.catalog.get_storage(GROUP, _POLICIES)

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (self._policies.prefix(),), self._look)

    async def _look(self, key: str) -> None:
        policy = await find_object(self._hub, GROUP, _POLICIES, "", forms.name_in(key))
        if policy is None:
            return
        generation = int(metadata_of(policy).get("generation") or 0)
        if int(find_at(policy, "status", "observedGeneration") or 0) >= generation:
            return
        catalog = self._hub.catalog.all()
        warnings = await off_loop(SELF.name, lambda: list(type_warnings(policy, catalog)))

        def checked(live: Object) -> Object:
            # Another generation has an event of its own, which brings us back.
            if metadata_of(live).get("generation") != generation:
                return live
            found: Object = {"expressionWarnings": warnings} if warnings else {}
            status = cast("Object", live.get("status") or {})
            return {
                **live,
                "status": {**status, "observedGeneration": generation, "typeChecking": found},
            }

        write = write_of(self._hub, self._policies, manager=_MANAGER, subresource="status")
        await edit_own(self._hub, self._policies, key, checked, write=write)


def type_warnings(policy: Object, catalog: tuple[Served, ...]) -> Iterator[Object]:
    """Yield an ExpressionWarning for every expression that does not fit the kinds it is about."""
    spec = cast("Object", policy.get("spec") or {})
    types = [(each, typed) for each in _named_kinds(spec, catalog) if (typed := _type_of(each))]
    params = _find_params(spec, catalog)
    for index, validation in enumerate(cast("list[Object]", spec.get("validations") or [])):
        for field in ("expression", "messageExpression"):
            text = str(validation.get(field) or "")
            if not text:
                continue
            found: list[str] = []
            for served, typed in types:
                declared = Declarations(
                    has_params=params is not None, object_type=typed, params_type=params or DYN
                )
                for each in cast("list[Object]", spec.get("variables") or []):
                    declared.add_variable(str(each.get("name")), str(each.get("expression")))
                fault = declared.compile(text, ANYTHING).fault
                if fault:
                    kind = served.info.group_version_kind
                    shown = fault.removeprefix("compilation failed: ")
                    found.append(f"{kind.api_version}, Kind={kind.kind}: {shown}\n")
            if found:
                yield {
                    "fieldRef": f"spec.validations[{index}].{field}",
                    "warning": "\n".join(found),
                }


def _named_kinds(spec: Object, catalog: tuple[Served, ...]) -> list[Served]:
    """Return the resources that the rules of a policy name, without those behind a wildcard."""
    rules: Any = find_at(spec, "matchConstraints", "resourceRules") or []
    by_name = {each.info.group_version_resource: each for each in catalog}
    found: dict[str, Served] = {}
    for rule in cast("list[Object]", rules):
        names = [
            sorted(set(cast("list[str]", rule.get(field) or [])))
            for field in ("apiGroups", "apiVersions", "resources")
        ]
        if any("*" in listed for listed in names[:2]):
            continue
        for group, version, resource in product(*names):
            for key, served in by_name.items():
                if (key.group, key.version, key.resource) == (group, version, resource):
                    kind = served.info.group_version_kind
                    found[f"{kind.group}/{kind.version}/{kind.kind}"] = served
    return [found[key] for key in sorted(found)][:_MOST_TYPES]


def _find_params(spec: Object, catalog: tuple[Served, ...]) -> Type | None:
    kind = cast("Object | None", spec.get("paramKind"))
    if kind is None:
        return None
    version = parse_api_version(str(kind.get("apiVersion")))
    for served in catalog:
        if served.info.group_version == version and served.info.kind == kind.get("kind"):
            return _type_of(served)
    return None


def _type_of(served: Served) -> Type | None:
    """Return the type of a kind's objects, with all of their metadata."""
    typed = type_of(served.rules.schema, is_resource=True, name=served.info.kind)
    metadata = type_of(OBJECT_META, is_resource=False, name="ObjectMeta")
    if typed is None or typed.fields is None or metadata is None:
        return None
    return Type(typed.name, fields={**typed.fields, "metadata": Field("metadata", metadata)})
