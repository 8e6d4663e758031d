"""`clusterspace interpret`: what the scripts of a customization say, tried with no hub."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from clusterspace.errors import ScriptFailed, UnusableConfiguration
from clusterspace.fleet.interpretation.customizations import OPERATIONS, Operation
from clusterspace.fleet.interpretation.lua_workers import LuaWorker
from clusterspace.kube.objects import Object, find_at, name_of

KIND: Final = "ResourceInterpreterCustomization"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: what looks like a time is text."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Checked:
    """One customization: its name, its target, and what is wrong with each of its scripts."""

    name: str
    target: str
    scripts: tuple[tuple[str, str | None], ...]
    """By operation: empty when it is well, None when there is none."""


@dataclass(frozen=True, slots=True)
class Given:
    """What scripts are given, as documents that were read."""

    desired: Object | None = None
    observed: Object | None = None
    items: tuple[Object, ...] = ()
    replicas: int = 0


def read_objects(text: str, source: str) -> tuple[Object, ...]:
    """Return the documents of a YAML or JSON text; UnusableConfiguration names the source."""
    try:
        found = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except yaml.YAMLError as error:
        raise UnusableConfiguration(f"{source} is neither YAML nor JSON: {error}") from None
    if not all(isinstance(each, dict) for each in found):
        raise UnusableConfiguration(f"{source} has a document that is not an object")
    return tuple(cast("list[Object]", found))


def read_customizations(file: Path) -> tuple[Object, ...]:
    """Return the customizations of a file, or of all YAML and JSON files of a directory."""
    files = [file]
    if file.is_dir():
        files = sorted(each for each in file.iterdir() if each.suffix in _SUFFIXES)
    found = [each for one in files for each in read_objects(one.read_text(), str(one))]
    for each in found:
        if each.get("kind") != KIND:
            kind = each.get("kind") or "an object without a kind"
            raise UnusableConfiguration(f"{file} has {kind} in it, and not a {KIND}")
    if not found:
        raise UnusableConfiguration(f"{file} has no {KIND} in it")
    return tuple(found)


@asynccontextmanager
async def _worker() -> AsyncGenerator[LuaWorker]:
    worker = LuaWorker()
    try:
        yield worker
    finally:
        await worker.close()


async def check(customizations: Sequence[Object]) -> list[Checked]:
    """Say of every script whether it can be read; nothing is run."""
    checked: list[Checked] = []
    async with _worker() as worker:
        for each in customizations:
            target: Object = find_at(each, "spec", "target") or {}
            said: list[tuple[str, str | None]] = []
            for operation in OPERATIONS:
                script = operation.script_in(each)
                said.append((operation.name, await _problem(worker, script) if script else None))
            where = f"{target.get('apiVersion', '')} {target.get('kind', '')}".strip()
            checked.append(Checked(name_of(each), where, tuple(said)))
    return checked


async def _problem(worker: LuaWorker, script: str) -> str:
    try:
        await worker.check(script)
    except ScriptFailed as error:
        return str(error)
    return ""


async def interpret(
    customizations: Sequence[Object], operation: Operation, given: Given
) -> list[tuple[str, Any]]:
    """Run the script for an operation, and return its results by name."""
    arguments = arguments_for(operation, given)
    script = _script_for(customizations, operation, given.observed or given.desired or {})
    async with _worker() as worker:
        results = await operation.run(worker, script, *arguments)
    return list(zip(operation.results, results, strict=True))


def arguments_for(operation: Operation, given: Given) -> tuple[Any, ...]:
    """Return what a script for an operation is called with; refuses when something is missing."""
    about = given.observed or given.desired
    if about is None:
        raise UnusableConfiguration("there is no object: name one with --observed-file")
    match operation.function:
        case "Retain":
            if given.desired is None or given.observed is None:
                raise UnusableConfiguration("Retain needs --desired-file and --observed-file")
            return given.desired, given.observed
        case "ReviseReplica":
            return about, given.replicas
        case "AggregateStatus":
            return about, list(given.items) or None
        case _:
            return (about,)


def _script_for(customizations: Sequence[Object], operation: Operation, about: Object) -> str:
    """Return the script for the kind of an object; of several the first by name, as on a hub."""
    target = {"apiVersion": about.get("apiVersion"), "kind": about.get("kind")}
    fitting = [each for each in customizations if find_at(each, "spec", "target") == target]
    for each in sorted(fitting, key=name_of):
        if script := operation.script_in(each):
            return script
    what = f"{target['kind']} of {target['apiVersion']}"
    raise UnusableConfiguration(f"no customization says {operation.name} of {what}")
