"""Whether a command printed what a page shows: words and numbers that matter, not ages and hashes.

A line `...` of a page stands for lines left out, and `...` at the end of a line for its rest.
"""

import re

_LEFT_OUT = "..."

_VARIABLE = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    (r"\b[a-z0-9]{6}\.[a-z0-9]{16,}", "TOKEN"),
    (r"sha256:[0-9a-f]{64}", "FINGERPRINT"),
    (r"\d{6} [a-z ]+ \([0-9a-f]{6}\)", "A LINE OF A SIMULATED LOG"),
    (r"(127\.0\.0\.1'?|localhost)(:|, )\d+", "ADDRESS"),
    (r"\b\d+(\.\d+){3}\b", "ADDRESS"),
    (r"^[a-z0-9]{6}(?=\s+\S+\s+(un)?used\b)", "TOKEN"),
    (r"\S*/(?=\.clusterspace/)", ""),
    (r"v\d+\.\d+\.\d+[+.\w-]*", "VERSION"),
    (r"(?<=-)([bcdfghjklmnpqrstvwxz2456789]{5,10}|(?=[a-f]*\d)[0-9a-f]{8,10})(?![\w-])", "HASH"),
    (r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{9,10}(?=-HASH)", "HASH"),
    (r"(?<!\S)(\d+(ms|[smhd]))+(?=\s|$)", "AGE"),
    (r"\b\d+(\.\d+)?([KMG]i|m)\b", "QUANTITY"),
    (r"\b\d[\d,]{3,}\b|(?<=revision )\d+", "NUMBER"),
)
"""What is another every time, and the word that stands for it."""


def find_differences(shown: str, printed: str) -> list[str]:
    """Return what a page shows that was not printed, and what was printed that it does not show."""
    waiting = _lines(printed)
    missing: list[str] = []
    for line in _lines(shown):
        found = next((each for each in waiting if _is_like(line, each)), None)
        if found is not None:
            waiting.remove(found)
        elif line != _LEFT_OUT:
            missing.append(f"shown, not printed: {line}")
    if _LEFT_OUT in _lines(shown):
        return missing
    return missing + [f"printed, not shown: {each}" for each in waiting]


def _is_like(shown: str, printed: str) -> bool:
    if shown == _LEFT_OUT:
        return False
    if shown.endswith(_LEFT_OUT):
        return printed.startswith(shown.removesuffix(_LEFT_OUT).rstrip())
    return shown == printed


def _lines(text: str) -> list[str]:
    return [" ".join(_plain(each).split()) for each in text.splitlines() if each.strip()]


def _plain(line: str) -> str:
    for pattern, word in _VARIABLE:
        line = re.sub(pattern, word, line)
    return line
