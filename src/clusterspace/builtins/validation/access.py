"""The rules of RBAC and of certificate signing requests."""

import base64
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.metadata import SELECTOR, is_readable
from clusterspace.builtins.validation.rules import (
    at,
    check_all,
    invalid_struct,
    one_of,
    problems_at,
    required,
    satisfies,
    struct_in,
    structs_in,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems, path_segment_problems
from clusterspace.kube.objects import Object

_GROUP: Final = "rbac.authorization.k8s.io"
_LEAST_SECONDS: Final = 600

MOST_RULES: Final = 2_000
MOST_SUBJECTS: Final = 5_000
"""What a role and a binding may hold. Kubernetes has no such limit; but rules are looked at with
every request of whoever holds them, and the largest roles there are have a few hundred."""


def check_role(role: Object) -> Iterator[Cause]:
    """Check the rules of a Role."""
    return _check_rules(role, is_namespaced=True)


def check_cluster_role(role: Object) -> Iterator[Cause]:
    """Check a ClusterRole."""
    yield from _check_rules(role, is_namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return
    place = "aggregationRule.clusterRoleSelectors"
    selectors = structs_in(aggregation, "clusterRoleSelectors")
    if not selectors:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield causes.required(place, why)
    for index, selector in enumerate(selectors):
        yield from check_all(selector, f"{place}[{index}]", SELECTOR)
        if not is_readable(selector):
            yield causes.invalid(f"{place}[{index}]", None, "invalid label selector.")


def _check_rules(role: Object, *, is_namespaced: bool) -> Iterator[Cause]:
    rules = structs_in(role, "rules")
    if len(rules) > MOST_RULES:
        yield causes.too_many("rules", len(rules), MOST_RULES)
    for index, rule in enumerate(rules):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield causes.required(at(path, "verbs"), "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            place, urls = at(path, "nonResourceURLs"), rule["nonResourceURLs"]
            if is_namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                yield causes.invalid(place, urls, why)
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                yield causes.invalid(place, urls, why)
        else:
            if not rule.get("apiGroups"):
                why = "resource rules must supply at least one api group"
                yield causes.required(at(path, "apiGroups"), why)
            if not rule.get("resources"):
                why = "resource rules must supply at least one resource"
                yield causes.required(at(path, "resources"), why)


def check_role_binding(binding: Object) -> Iterator[Cause]:
    """Check a RoleBinding."""
    return _check_binding(binding, ("Role", "ClusterRole"), subject_namespace_is_known=True)


def check_cluster_role_binding(binding: Object) -> Iterator[Cause]:
    """Check a ClusterRoleBinding."""
    return _check_binding(binding, ("ClusterRole",), subject_namespace_is_known=False)


def _check_binding(
    binding: Object, kinds: tuple[str, ...], *, subject_namespace_is_known: bool
) -> Iterator[Cause]:
    role = struct_in(binding, "roleRef")
    yield from one_of("apiGroup", _GROUP)(role, "roleRef")
    yield from one_of("kind", *kinds)(role, "roleRef")
    if not role.get("name"):
        yield causes.required("roleRef.name")
    else:
        yield from problems_at("roleRef.name", role["name"], path_segment_problems(role["name"]))
    subjects = structs_in(binding, "subjects")
    if len(subjects) > MOST_SUBJECTS:
        yield causes.too_many("subjects", len(subjects), MOST_SUBJECTS)
    for index, subject in enumerate(subjects):
        path = f"subjects[{index}]"
        yield from required("name")(subject, path)
        kind = subject.get("kind", "")
        if kind == "ServiceAccount":
            name = subject.get("name", "")
            if name:
                yield from problems_at(at(path, "name"), name, dns1123_subdomain_problems(name))
            yield from one_of("apiGroup", "")(subject, path)
            if not subject_namespace_is_known and not subject.get("namespace"):
                yield causes.required(at(path, "namespace"))
        elif kind in ("User", "Group"):
            yield from one_of("apiGroup", _GROUP)(subject, path)
        else:
            known = ("ServiceAccount", "User", "Group")
            yield causes.not_supported(at(path, "kind"), kind, known)


def check_binding_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a binding goes on granting the same role."""
    role = struct_in(new, "roleRef")
    if role != struct_in(old, "roleRef"):
        shown = {
            "APIGroup": role.get("apiGroup"),
            "Kind": role.get("kind"),
            "Name": role.get("name"),
        }
        yield invalid_struct("roleRef", shown, "cannot change roleRef")


_LIFETIME: Final = satisfies(
    "expirationSeconds",
    lambda seconds: seconds >= _LEAST_SECONDS,
    "may not specify a duration less than 600 seconds (10 minutes)",
)


def check_signing_request(request: Object) -> Iterator[Cause]:
    """Check a CertificateSigningRequest."""
    spec = struct_in(request, "spec")
    encoded = base64.b64decode(str(spec.get("request") or ""))
    if not encoded.lstrip().startswith(b"-----BEGIN CERTIFICATE REQUEST-----"):
        why = "PEM block type must be CERTIFICATE REQUEST"
        yield causes.invalid("spec.request", spec.get("request"), why)
    yield from required("usages")(spec, "spec")
    seen: set[str] = set()
    for index, usage in enumerate(texts_in(spec, "usages")):
        place = f"spec.usages[{index}]"
        if usage not in _USAGES:
            yield causes.not_supported(place, usage, _USAGES)
        if usage in seen:
            yield causes.duplicate(place, usage)
        seen.add(usage)
    yield from required("signerName")(spec, "spec")
    if spec.get("signerName"):
        name = spec["signerName"]
        domain, slash, path = name.partition("/")
        place = "spec.signerName"
        if not slash:
            why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            yield causes.invalid(place, name, why)
        else:
            if "." not in domain:
                why = "should be a domain with at least two segments separated by dots"
                yield causes.invalid(place, domain, why)
            yield from problems_at(place, domain, dns1123_subdomain_problems(domain))
            yield from problems_at(place, path, dns1123_subdomain_problems(path))
    yield from _LIFETIME(spec, "spec")


_USAGES: Final = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
