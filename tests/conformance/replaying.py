"""Recorded exchanges replayed against a running server, and how alike its answers are.

Every recorded step is judged on three levels, each of which needs the one before it:

    status    the HTTP status is the recorded one
    shape     objects are equal field by field; failures agree in reason, code, details and causes
    message   the text of a failure is equal, too

A symbol such as `<uid:1>` takes the value it first meets and keeps it to the end of the scenario:
in answers that follow, and in requests that send it back.
"""

import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import zip_longest
from typing import Any, Final
from urllib.parse import quote, urlsplit

from clusterspace.kube.objects import find_at, with_value

LEVELS: Final = ("status", "shape", "message")
_SYMBOL: Final = re.compile(r"<(?:uid|rv|continue|token):\d+>")
_AGE: Final = re.compile(r"(\d+[smhd])+")
_RUNNING_NUMBER: Final = re.compile(r"(record \(|current: )\d+(?![-\w])")
_MISSING: Final = object()
_NAMESPACES: Final = "/api/v1/namespaces"
COMPANION: Final = "kube-root-ca.crt"
_ACCOUNT: Final = "default"
_PATIENCE: Final = 30.0
_WIDELY_SERVED: Final = 0.9
"""The share of a recorded discovery document that must be served: nobody serves every kind."""


@dataclass(frozen=True)
class Outcome:
    """How alike one answer is."""

    what: str
    level: str
    """The highest level it reached; empty when not even the status is right."""
    why: str = ""

    def reaches(self, level: str) -> bool:
        """Whether the answer is alike on this level."""
        return bool(self.level) and LEVELS.index(self.level) >= LEVELS.index(level)


@dataclass
class Replay:
    """One scenario on one server; `tokens` are by the name the recording has for a user."""

    url: str
    authority: str
    tokens: Mapping[str, str]
    _symbols: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, scenario: Mapping[str, Any]) -> Iterator[Outcome]:
        """Carry out every step; yield an outcome for each that was recorded with its answer."""
        for step in scenario["steps"]:
            if "pause" in step:
                time.sleep(step["pause"])  # the recording waited too: for a cache of the server's
            elif "setup" in step:
                self._send(step["setup"])
            else:
                yield self._judge(f"{scenario['scenario']}: {step.get('note', '')}", step)

    def _judge(self, name: str, step: Mapping[str, Any]) -> Outcome:
        request, recorded = step["request"], step["response"]
        what = f"{name} ({request['method']} {request['path']})"
        status, text = self._send(request)
        if status != recorded["status"]:
            return Outcome(
                what, "", f"status {status}, recorded {recorded['status']}: {text[:200]}"
            )
        if "events" in recorded:
            answer, wanted = [json.loads(line) for line in text.splitlines()], recorded["events"]
        else:
            answer, wanted = _read(text), recorded["body"]
        answer = self._as_of_then(wanted, _without_companions(answer))
        difference = next(self._differences(_without_companions(wanted), answer, ""), "")
        if difference:
            return Outcome(what, "status", difference)
        said, meant = _message_of(answer), self._filled(_message_of(wanted))
        if said != meant:
            return Outcome(what, "shape", f"says {said!r}, recorded {meant!r}")
        return Outcome(what, "message")

    def _as_of_then(self, wanted: Any, answer: Any) -> Any:
        """Return a list with the recorded version, if it is of a later one.

        It is as of now: a lease of its own that the server renewed between two steps counts, too.
        """
        recorded = self._filled(find_at(wanted, "metadata", "resourceVersion"))
        version = find_at(answer, "metadata", "resourceVersion")
        is_list = str(find_at(answer, "kind")).endswith("List")
        if not is_list or not str(recorded).isdecimal() or not str(version).isdecimal():
            return answer
        is_later = int(version) > int(recorded)
        return with_value(answer, recorded, "metadata", "resourceVersion") if is_later else answer

    def _send(self, request: Mapping[str, Any]) -> tuple[int, str]:
        """Send a request, and wait for what comes with a namespace that it made.

        Else it would come between two later steps, at a moment of its own, and have a version.
        """
        status, text = self._exchange(request)
        if (
            request["method"] == "POST"
            and request["path"] == _NAMESPACES
            and status == HTTPStatus.CREATED
        ):
            made = json.loads(text)["metadata"]["name"]
            for each in (f"configmaps/{COMPANION}", f"serviceaccounts/{_ACCOUNT}"):
                path = f"{_NAMESPACES}/{made}/{each}"
                looked = {"method": "GET", "path": path, "accept": "application/json"}
                deadline = time.monotonic() + _PATIENCE
                while self._exchange(looked)[0] != HTTPStatus.OK:
                    assert time.monotonic() < deadline, f"no {path}"
                    time.sleep(0.02)
        return status, text

    def _exchange(self, request: Mapping[str, Any]) -> tuple[int, str]:
        place = urlsplit(self.url)
        assert place.hostname is not None
        trust = ssl.create_default_context(cafile=self.authority)
        headers = {"Accept": request["accept"], "User-Agent": "recorder"}
        headers |= request.get("headers", {})
        user = request.get("as", "admin")
        if user:
            headers["Authorization"] = f"Bearer {self.tokens.get(user, user)}"
        body = request.get("body")
        if body is not None:
            headers["Content-Type"] = request["contentType"]
            body = body if isinstance(body, str) else json.dumps(self._filled(body))
        connection = http.client.HTTPSConnection(place.hostname, place.port, context=trust)
        try:
            path = _SYMBOL.sub(lambda found: quote(self._value(found[0]), safe=""), request["path"])
            connection.request(request["method"], path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _value(self, symbol: str) -> str:
        return self._symbols.get(symbol, symbol)

    def _filled(self, recorded: Any) -> Any:
        """Return a recorded value with the symbols that are known by now replaced."""
        if isinstance(recorded, dict):
            return {key: self._filled(value) for key, value in recorded.items()}
        if isinstance(recorded, list):
            return [self._filled(value) for value in recorded]
        if isinstance(recorded, str):
            return _SYMBOL.sub(lambda found: self._value(found[0]), recorded)
        return recorded

    # -- where an answer parts from the recording ------------------------------------------------

    def _differences(self, wanted: Any, answer: Any, place: str) -> Iterator[str]:
        if isinstance(wanted, dict) and isinstance(answer, dict):
            yield from self._in_fields(wanted, answer, place)
        elif isinstance(wanted, list) and isinstance(answer, list):
            for at, (each, other) in enumerate(zip_longest(wanted, answer, fillvalue=_MISSING)):
                yield from self._differences(each, other, f"{place}[{at}]")
        elif isinstance(wanted, str) and isinstance(answer, str):
            if not self._is_same_text(wanted, answer, place):
                yield f"{place}: {answer!r}, recorded {self._filled(wanted)!r}"
        elif wanted is _MISSING or answer is _MISSING or wanted != answer:
            yield f"{place}: {_shown(answer)}, recorded {_shown(wanted)}"

    def _in_fields(
        self, wanted: dict[str, Any], answer: dict[str, Any], place: str
    ) -> Iterator[str]:
        if wanted.get("status") == "Failure":
            wanted, answer = _failure(wanted), _failure(answer)
        elif catalogue := _catalogue(wanted):
            yield from _unserved(catalogue, _catalogue(answer), place)
            return
        elif "gitVersion" in wanted:  # a version document: what was built when is everybody's own
            wanted = {key: answer.get(key) for key in ("major", "minor", "gitVersion")}
            answer = {key: value for key, value in answer.items() if key in wanted and value}
        for key in sorted({*wanted, *answer} - {"description", "serverAddress"}):
            found = answer.get(key, _MISSING)
            yield from self._differences(wanted.get(key, _MISSING), found, f"{place}.{key}")

    def _is_same_text(self, wanted: str, answer: str, place: str) -> bool:
        if "<time>" in wanted or wanted in ("<unknown>", "<nil>"):
            return True
        if _SYMBOL.fullmatch(wanted):
            return self._symbols.setdefault(wanted, answer) == answer
        if ".cells[" in place and _AGE.fullmatch(wanted):
            return _AGE.fullmatch(answer) is not None
        known = self._filled(wanted)
        parts = _SYMBOL.split(known)  # what is still a symbol may be anything
        return re.fullmatch(".+".join(map(re.escape, parts)), answer, re.DOTALL) is not None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _without_companions(answer: Any) -> Any:
    """Return a list, a table or the events of a watch without what comes with each namespace.

    The recorded server had no controllers beside it, and nothing was in a new namespace.
    """
    if isinstance(answer, list):
        return [each for each in answer if not _is_companion(each.get("object", each))]
    if not isinstance(answer, dict):
        return answer
    lists = {key: answer[key] for key in ("items", "rows") if isinstance(answer.get(key), list)}
    return {**answer, **{key: _without_companions(each) for key, each in lists.items()}}


def _is_companion(listed: Any) -> bool:
    if not isinstance(listed, dict):
        return False
    if listed.get("kind") == "Table":  # an event of a watch that asks for tables
        return any(_is_companion(row.get("object")) for row in listed.get("rows") or ())
    metadata = listed.get("metadata", {})
    name = metadata.get("name")
    return name == COMPANION or (name == _ACCOUNT and "namespace" in metadata)


def _shown(value: Any) -> str:
    return "nothing" if value is _MISSING else json.dumps(value)[:120]


def _message_of(answer: Any) -> str | None:
    """Return the text of a failure, without the numbers that are each server's own."""
    if not isinstance(answer, dict) or answer.get("status") != "Failure":
        return None
    return _RUNNING_NUMBER.sub(r"\1N", re.sub(r"Bad_\w+", "Bad", answer.get("message", "")))


def _failure(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what programs read of a failure; its text is a level of its own."""
    details = status.get("details") or {}
    name = details.get("name", "")
    known = {key: details.get(key) for key in ("group", "kind", "uid", "retryAfterSeconds")}
    causes = [f"{each.get('reason')} {each.get('field')}" for each in details.get("causes") or ()]
    named = {"name": "" if name.startswith("Bad_") else name, "causes": sorted(causes)}
    kept = {key: status.get(key) for key in ("kind", "apiVersion", "status", "reason", "code")}
    return {**kept, "details": {**known, **named}}


def _catalogue(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a discovery document lists, by name; empty for any other document."""
    match document.get("kind"):
        case "APIResourceList":
            return {each["name"]: _entry(each, each["kind"]) for each in document["resources"]}
        case "APIGroupDiscoveryList":
            return {
                f"{group['metadata'].get('name', '')}/{version['version']}/{each['resource']}": (
                    _entry(each, each["responseKind"]["kind"])
                )
                for group in document["items"]
                for version in group["versions"]
                for each in version.get("resources", ())
            }
        case "APIGroupList":
            return {
                f"{group['name']}/{each['version']}": group["preferredVersion"]["version"]
                for group in document["groups"]
                for each in group["versions"]
            }
        case _:
            paths = document.get("paths") if set(document) == {"paths"} else None
            return {
                path: True for path in paths or () if re.fullmatch(r"/apis?(/[^/]*){0,2}", path)
            }


def _entry(listed: Mapping[str, Any], kind: str) -> tuple[Any, ...]:
    words = (listed.get("shortNames") or [], listed.get("categories") or [])
    scope = listed.get("scope", listed.get("namespaced"))
    return (kind, scope, sorted(listed["verbs"]), *words)


def _unserved(wanted: dict[str, Any], served: dict[str, Any], place: str) -> Iterator[str]:
    """Yield what is served otherwise than recorded, or not at all; alpha and beta need not be."""
    lasting = {key: value for key, value in wanted.items() if not re.search("alpha|beta", key)}
    for key in lasting.keys() & served.keys():
        if lasting[key] != served[key]:
            yield f"{place}: {key} is {served[key]}, recorded {lasting[key]}"
    missing = sorted(lasting.keys() - served.keys())
    if len(missing) > (1 - _WIDELY_SERVED) * len(lasting):
        yield f"{place}: {len(missing)} of {len(lasting)} are not served, such as {missing[:3]}"
