"""A proof as people and programs read it: text, JSON, and HTML that an auditor can keep.

In all three what is not simply unchanged comes first. Names and reasons are somebody else's text:
they are one line on a terminal, and nothing but text in a page, which needs no script and loads
nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from clusterspace.fleet.migration.proof import Finding, Report, Verdict
from clusterspace.fleet.migration.snapshots import VERSION, Snapshot
from clusterspace.kube.objects import Object
from clusterspace.kube.plain_text import line, lines_of_json

_COLUMNS: Final = (
    "KIND",
    "BEFORE",
    "AFTER",
    "UNCHANGED",
    *(each.value.upper() for each in Verdict),
)
_MEANINGS: Final = {
    Verdict.CHANGED: "it is there, and is not what it was",
    Verdict.GONE: "it was there before, and is not any more",
    Verdict.NEW: "it was not there before",
    Verdict.NOT_SEEN: "it could not be looked at, before or after: nothing is claimed",
    Verdict.EXPLAINED: "it is not as before for a reason that is seen, and is not the migration",
}


def text_of(report: Report) -> str:
    """Return the report for a terminal."""
    lines = [report.summary, ""]
    if report.findings:
        rows = [(each.verdict.value, _named(each), each.why) for each in report.findings]
        lines += [*_table(("", "OBJECT", "WHY"), rows), ""]
    counted = [row for row in _counts(report) if any(cell != "0" for cell in row[1:])]
    lines += [*_table(_COLUMNS, counted), ""]
    lines += [*report.information, ""] if report.information else []
    lines += [f"{name}: {value}" for name, value in _circumstances(report)]
    return "\n".join(map(line, lines)) + "\n"


def document_of(report: Report) -> Object:
    """Return the report for programs."""
    document: Object = {
        "version": VERSION,
        "isUnchanged": report.is_unchanged,
        "summary": report.summary,
        "cluster": {"name": report.after.cluster, "uid": report.after.cluster_uid},
        "namespaces": list(report.after.namespaces),
        "before": _taken(report.before, report.digests[0]),
        "after": _taken(report.after, report.digests[1]),
        "findings": [
            {
                "verdict": each.verdict.value,
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
                "why": each.why,
            }
            for each in report.findings
        ],
        "counts": [
            {
                "kind": each.kind,
                "before": each.before,
                "after": each.after,
                "unchanged": each.unchanged,
                **{verdict.value: count for verdict, count in each.by_verdict.items()},
            }
            for each in report.counts
        ],
        "information": list(report.information),
    }
    return lines_of_json(document)


def _taken(snapshot: Snapshot, digest: str) -> Object:
    return {
        "began": snapshot.began,
        "ended": snapshot.ended,
        "takenBy": snapshot.taken_by,
        "objects": len(snapshot.identities),
        "sha256": digest,
        "notSeen": [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name, "why": each.why}
            for each in snapshot.unseen
        ],
    }


def _named(finding: Finding) -> str:
    place = "/".join(each for each in (finding.namespace, finding.name) if each)
    return f"{finding.kind} {place or '(all)'}"


def _counts(report: Report) -> Iterator[tuple[str, ...]]:
    for each in report.counts:
        verdicts = (str(each.by_verdict.get(verdict, 0)) for verdict in Verdict)
        kind = "Service endpoints" if each.kind == "Service" else each.kind
        yield (kind, str(each.before), str(each.after), str(each.unchanged), *verdicts)


def _circumstances(report: Report) -> Iterator[tuple[str, str]]:
    """Return what was compared, when, by whom, and how it can be checked."""
    yield "Cluster", f"{report.after.cluster}, UID {report.after.cluster_uid}"
    yield "Namespaces", ", ".join(report.after.namespaces) or "all"
    for name, taken, digest in (
        ("Before", report.before, report.digests[0]),
        ("After", report.after, report.digests[1]),
    ):
        by = taken.taken_by or "somebody whom the cluster does not name"
        yield name, f"{len(taken.identities)} objects, {taken.began} to {taken.ended}, by {by}"
        yield f"{name}, SHA-256", digest
    yield (
        "Compared",
        "UIDs, container IDs, restart counts, start times and nodes of pods; pod templates; "
        "UIDs and hashes of ReplicaSets and ControllerRevisions; UIDs and start times of Jobs; "
        "addresses and targets of Services; volumes of claims",
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    safe = [columns, *([line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in safe) for index in range(len(columns))]
    for row in safe:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# -- HTML ------------------------------------------------------------------------------------------

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881;
  --bad: #b3261e; --unsure: #8a5a00; --fine: #1b6e3c; }
@media (prefers-color-scheme: dark) {
  :root { --bad: #ff8a80; --unsure: #ffc766; --fine: #7ddba3; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.2rem; padding: .8rem 1rem; border-left: .4rem solid;
  background: var(--soft); }
.bad { color: var(--bad); } .unsure { color: var(--unsure); } .fine { color: var(--fine); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th { white-space: nowrap; overflow-wrap: normal; } td.number, th.number { text-align: right; }
td:first-child { white-space: nowrap; }
@media print { body { margin: 0; max-width: none; } }
"""
_STYLES: Final = {
    Verdict.CHANGED: "bad",
    Verdict.GONE: "bad",
    Verdict.NEW: "bad",
    Verdict.NOT_SEEN: "unsure",
    Verdict.EXPLAINED: "fine",
}


def html_of(report: Report) -> str:
    """Return the report as one page that needs no script and loads nothing."""
    worst = report.findings[0].verdict if report.findings else None
    is_empty = not report.compared
    style = "fine" if report.is_unchanged else _STYLES[worst] if worst else "unsure"
    title = f"Migration proof for cluster {report.after.cluster}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        # Even if a name were to get through as markup, it could neither run nor load anything.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{_safe(title)}</h1>",
        f'<p class="verdict {style}" role="status"><strong>{_safe(report.summary)}</strong></p>',
    ]
    for verdict in Verdict:
        found = [each for each in report.findings if each.verdict is verdict]
        if not found:
            continue
        heading = f"{verdict.value.capitalize()}: {len(found)}"
        parts.append(f'<h2 class="{_STYLES[verdict]}">{_safe(heading)}</h2>')
        parts.append(f"<p>{_safe(_MEANINGS[verdict].capitalize())}.</p>")
        rows = ((_named(each), each.why) for each in found)
        parts += _html_table(("Object", "Why"), rows)
    if not report.findings and not is_empty:
        parts.append("<p>Everything that ran before was seen again, and nothing else.</p>")
    parts.append("<h2>How many</h2>")
    columns = [each.capitalize() for each in _COLUMNS]
    parts += _html_table(columns, _counts(report), numbers_from=1)
    if report.information:
        parts.append("<h2>What autoscalers did meanwhile</h2><ul>")
        parts += [f"<li>{_safe(each)}</li>" for each in report.information]
        parts.append("</ul>")
    parts.append("<h2>What was compared, when, and by whom</h2>")
    parts += _html_table(("", ""), _circumstances(report))
    parts.append("</main></body></html>")
    return "\n".join(parts) + "\n"


def _html_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 99
) -> Iterator[str]:
    def cells(tag: str, row: Sequence[str]) -> str:
        classes = (' class="number"' if index >= numbers_from else "" for index in range(len(row)))
        pairs = zip(classes, row, strict=True)
        return "".join(f"<{tag}{css}>{_safe(cell)}</{tag}>" for css, cell in pairs)

    yield '<div class="scroll"><table>'
    if any(columns):
        yield f"<thead><tr>{cells('th', columns)}</tr></thead>"
    yield "<tbody>"
    for row in rows:
        yield f"<tr>{cells('td', row)}</tr>"
    yield "</tbody></table></div>"


def _safe(text: str) -> str:
    return escape(line(text), quote=True)
