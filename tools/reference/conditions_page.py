"""docs/reference/conditions.md: every condition type, every reason, every event."""

from collections.abc import Iterable, Iterator
from typing import Final

from tools.reference.condition_sites import Site, find_sites
from tools.reference.markdown import table
from tools.reference.meanings import INDIRECT, KINDS, NOT_OURS, REASONS, TYPES

_INTRODUCTION: Final = """\
# Conditions and events

What our controllers write into `status.conditions` and record as events. Types and reasons that
Karmada and KubeFleet have are theirs. Conditions of simulated members' nodes, pods and workloads
are Kubernetes' own and not repeated here. So are those of templates, which say how their copies
are: true when they are in every cluster, else with the cluster that holds it up in the message, and
`Unknown` with reason `NotReported` while a cluster has not said anything.
"""
_EVENTS: Final = """\
## Events

`kubectl get events` and `kubectl describe` show them. A cluster's `Ready` condition changing is an
event with the condition's reason; what a MemberCluster's agent needs is told as the kind and
`Created`, `Updated` and the like.
"""


class Undocumented(Exception):
    """The code and the sentences about it do not agree."""


def page() -> str:
    """Return the whole page; Undocumented when a sentence is missing or there is one too many."""
    sites = [each for each in find_sites(INDIRECT) if not each.module.startswith(NOT_OURS)]
    problems = list(_problems(sites))
    if problems:
        raise Undocumented("\n".join(problems))
    return "\n".join((_INTRODUCTION, *_conditions(sites), _EVENTS, _events(sites))) + "\n"


def _problems(sites: list[Site]) -> Iterator[str]:
    for site in sites:
        for written in site.unknown:
            yield f"{site.module}: say in meanings.INDIRECT where `{written}` comes from"
        if not site.is_event and _kind(site) is None:
            yield f"{site.module}: say in meanings.KINDS whose conditions these are"
    used = {(site.module, each) for site in sites for each in site.written}
    for module, written in sorted(INDIRECT.keys() - used):
        yield f"meanings.INDIRECT explains `{written}` in {module}, which is not there"
    types = {each for site in sites for each in site.types}
    reasons = {each for site in sites for each in site.reasons}
    yield from _differences("TYPES", types, TYPES.keys())
    yield from _differences("REASONS", reasons, REASONS.keys())


def _differences(table_name: str, said: Iterable[str], meant: Iterable[str]) -> Iterator[str]:
    for each in sorted(set(said) - set(meant)):
        yield f"meanings.{table_name} does not say what {each} means"
    for each in sorted(set(meant) - set(said)):
        yield f"meanings.{table_name} explains {each}, which nothing says"


def _kind(site: Site) -> str | None:
    matches = [each for each in KINDS if f"{site.module}.".startswith(f"{each}.")]
    return KINDS[max(matches, key=len)] if matches else None


def _conditions(sites: list[Site]) -> Iterator[str]:
    conditions = [each for each in sites if not each.is_event]
    for kind in sorted({str(_kind(each)) for each in conditions}):
        yield f"## {kind}\n"
        of_kind = [each for each in conditions if _kind(each) == kind]
        for name in sorted({each for site in of_kind for each in site.types}):
            yield f"**{name}**: {TYPES[name]}\n"
            yield table(("reason", "status", "meaning"), _rows(of_kind, name)) + "\n"


def _rows(sites: list[Site], condition_type: str) -> list[tuple[str, str, str]]:
    statuses: dict[str, set[str]] = {}
    for site in sites:
        for reason in site.reasons if condition_type in site.types else ():
            statuses.setdefault(reason, set()).update(site.statuses)
    return [
        (f"`{reason}`", _only(statuses[reason]), REASONS[reason]) for reason in sorted(statuses)
    ]


def _only(statuses: set[str]) -> str:
    """Return the status, unless the code decides it elsewhere."""
    return next(iter(statuses)) if len(statuses) == 1 else ""


def _events(sites: list[Site]) -> str:
    reasons = {each for site in sites if site.is_event for each in site.reasons}
    return table(("reason", "meaning"), [(f"`{each}`", REASONS[each]) for each in sorted(reasons)])
