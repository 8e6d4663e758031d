"""Run scripts that anybody may have written: what the process of a worker does.

A script sees tables, strings, numbers, and the library `kube`; nothing that opens a file, loads
code, or is shared with the next script. Its steps and its memory are counted. What it can do
without a step, like matching a pattern that never ends, is ended from outside, with the process:
see `lua_workers`. The process itself may open no file and write none, so that a hole in the
sandbox leads into a room without doors.

Lua 5.1, since that is what Karmada's scripts are written for.
"""

import math
import resource
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, cast

import msgspec
from lupa.lua51 import LuaError, LuaMemoryError, LuaRuntime, lua_type

from clusterspace.apis.interpreter.templates import dependencies_in, replicas_in
from clusterspace.errors import MalformedQuantity, ScriptFailed
from clusterspace.kube.quantities import parse_quantity

MOST_STEPS: Final = 5_000_000
"""Instructions of one call; some hundred milliseconds of them."""
MOST_MEMORY: Final = 64 * 1024 * 1024
"""What the objects and the script may take together, in Lua."""
MOST_DEPTH: Final = 64
"""How deep a table may be that comes back: one that contains itself has no end."""
MOST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer; an object on a hub has three quarters of that at most."""
_PROCESS_MEMORY: Final = 1024 * 1024 * 1024
HEADER: Final = struct.Struct(">I")
"""In front of each message, either way: how many bytes it has."""


_PRELUDE: Final = """
local sethook, loadstring, setfenv, error, pairs, type = ...
local GIVEN = {"assert", "error", "ipairs", "next", "select", "tonumber", "tostring", "type",
               "unpack"}
local LIBRARIES = {"math", "string", "table"}
local NOT_GIVEN = {"collectgarbage", "dofile", "getfenv", "getmetatable", "load", "loadfile",
                   "loadstring", "module", "newproxy", "rawequal", "rawget", "rawset", "require",
                   "setfenv", "setmetatable", "print"}
local globals, kube, os_clock, os_time, os_date = _G, nil, os.clock, os.time, os.date
local pcall, sort, first_byte, is_over = pcall, table.sort, string.byte, false
-- Any text leads to the functions of this table: ("").dump
string.dump = nil

-- By number, then by text: two runs of a script must not differ by the order of a table.
local function is_before(a, b)
  if type(a) == type(b) then return a < b end
  return type(a) == "number"
end

local function in_order(given)
  local keys, others = {}, {}
  for key in pairs(given) do
    local kept = (type(key) == "string" or type(key) == "number") and keys or others
    kept[#kept + 1] = key
  end
  sort(keys, is_before)
  for _, key in ipairs(others) do keys[#keys + 1] = key end
  local at = 0
  return function()
    repeat
      at = at + 1
      if keys[at] == nil then return nil end
    until given[keys[at]] ~= nil
    return keys[at], given[keys[at]]
  end
end

-- What ends a script must not be caught by it.
local function unless_over(...)
  if is_over then error("it took too many steps", 0) end
  return ...
end

-- Behind the failure, and not in it: there no steps are counted.
local function handled(handler, is_well, ...)
  if is_well then return true, ... end
  return false, handler(...)
end

local function environment()
  local env = {_VERSION = globals._VERSION}
  env._G = env
  for _, name in ipairs(GIVEN) do env[name] = globals[name] end
  for _, name in ipairs(NOT_GIVEN) do
    env[name] = function() error(name .. " is not to be had in a script", 2) end
  end
  for _, library in ipairs(LIBRARIES) do
    local copy = {}
    for name, value in pairs(globals[library]) do copy[name] = value end
    env[library] = copy
  end
  env.pairs = in_order
  env.pcall = function(...) return unless_over(pcall(...)) end
  env.xpcall = function(called, handler)
    return handled(handler, unless_over(pcall(called)))
  end
  env.os = {clock = os_clock, time = os_time, date = os_date}
  env.print = function() end
  env.require = function(name)
    if name ~= "kube" then error("there is no module " .. tostring(name) .. ", only kube", 2) end
    local copy = {}
    -- Behind functions of Lua, failures as text: what is Python's has attributes, which lead
    -- everywhere.
    for name, value in pairs(kube) do
      copy[name] = function(...)
        local problem, result = value(...)
        if problem then error(problem, 2) end
        return result
      end
    end
    return copy
  end
  return env
end

local function load(script)
  -- Lua runs what is compiled as it is, and what it does to the memory of the process is not looked
  -- at: bounds, types and budgets are checks of the compiler.
  if first_byte(script) == 27 then error("it is compiled, and not text", 0) end
  local chunk, problem = loadstring(script, "=script")
  if not chunk then error(problem, 0) end
  return chunk
end

local function run(script, name, steps, count, ...)
  local chunk = load(script)
  local env = environment()
  setfenv(chunk, env)
  is_over = false
  sethook(function()
    is_over = true
    error("it took more than " .. steps .. " steps", 0)
  end, "", steps)
  chunk()
  local called = env[name]
  if type(called) ~= "function" then
    sethook()
    error("there is no function " .. name, 0)
  end
  local first, second = called(unpack({...}, 1, count))
  sethook()
  return first, second
end

return load, run, function() sethook() end, function(library) kube = library end
"""


class Sandbox:
    """Runs one function of one script after the other; none leaves anything to the next."""

    def __init__(self, *, most_steps: int = MOST_STEPS, most_memory: int = MOST_MEMORY) -> None:
        self._steps = most_steps
        # Its stubs know nothing of its arguments.
        lua: Any = cast("Any", LuaRuntime)(
            encoding="utf-8",
            register_eval=False,
            register_builtins=False,
            attribute_filter=_no_attributes,
            unpack_returned_tuples=True,
            max_memory=most_memory,
        )
        self._lua = lua
        names = "debug.sethook, loadstring, setfenv, error, pairs, type"
        prelude = lua.eval(f"function(text) return loadstring(text)({names}) end")
        self._load, self._run, self._unhook, give_kube = prelude(_PRELUDE)
        give_kube(lua.table_from({key: _with_message(each) for key, each in self._kube().items()}))
        # Whatever else there was is out of reach: the standard library, and Python.
        for name in ("python", "io", "debug", "package", "coroutine"):
            lua.globals()[name] = None

    def check(self, script: str) -> None:
        """Say what is wrong with how a script is written, without running it."""
        try:
            self._load(script)
        except LuaError as error:
            raise ScriptFailed(_words(error)) from None

    def call(self, script: str, function: str, arguments: list[Any]) -> tuple[Any, Any]:
        """Return the first two values of a function; a table that is empty is `{}`."""
        try:
            given = [self._to_lua(each) for each in arguments]
            returned = self._run(script, function, self._steps, len(given), *given)
            pair = cast("tuple[Any, ...]", returned if isinstance(returned, tuple) else (returned,))
            first, second, *_ = (*pair, None, None)
            return self._from_lua(first), self._from_lua(second)
        except LuaMemoryError:
            raise ScriptFailed("it took more memory than a script has") from None
        except LuaError as error:
            raise ScriptFailed(_words(error)) from None
        except UnicodeDecodeError:
            raise ScriptFailed("it returned text that is not UTF-8") from None
        finally:
            self._unhook()

    def _to_lua(self, value: Any) -> Any:
        if isinstance(value, (dict, list)):
            return self._lua.table_from(value, recursive=True)
        return value

    def _from_lua(self, value: Any, depth: int = 0) -> Any:
        kind = lua_type(value)
        if kind is None:
            if isinstance(value, float) and not math.isfinite(value):
                raise ScriptFailed("it returned a number that JSON cannot say")
            return value
        if kind != "table":
            raise ScriptFailed(f"it returned a {kind}, which is not data")
        if depth > MOST_DEPTH:
            raise ScriptFailed(f"it returned a table more than {MOST_DEPTH} deep")
        items = {key: self._from_lua(each, depth + 1) for key, each in value.items()}
        if items and all(isinstance(key, int) for key in items):
            if set(items) != set(range(1, len(items) + 1)):
                raise ScriptFailed("it returned a list with holes in it")
            return [items[position] for position in range(1, len(items) + 1)]
        if not all(isinstance(key, str) for key in items):
            raise ScriptFailed("it returned a table with keys that are not all text")
        return dict(sorted(items.items()))  # Lua's order is of chance

    def _kube(self) -> Mapping[str, Any]:
        """Return Karmada's library of functions for scripts."""

        def quantity(text: object) -> Any:
            if text is None:
                return parse_quantity("0")
            if isinstance(text, bool) or not isinstance(text, str | int | float):
                raise ScriptFailed(f"a quantity is text or a number, and not {text!r:.40}")
            try:
                return parse_quantity(str(text))
            except MalformedQuantity:
                raise ScriptFailed(f"{text!r:.40} is not a quantity") from None

        def resource_add(*texts: object) -> str:
            total = parse_quantity("0")
            for text in texts:
                total += quantity(text)
            return str(total)

        def resource_quantity(text: object = None) -> float:
            number = quantity(text).nanos / 1e9
            if number < 0:
                raise ScriptFailed(f"{text} is less than nothing")
            return number

        def pod_requirements(template: object) -> Any:
            replicas = replicas_in(_workload(self._from_lua(template)))
            return self._to_lua((replicas.requirements if replicas else None) or {})

        def pod_dependencies(template: object, namespace: object = None) -> Any:
            workload = _workload(self._from_lua(template))
            workload["metadata"] = {"namespace": str(namespace or "default")}
            return self._to_lua([each.written() for each in dependencies_in(workload)])

        return {
            "resourceAdd": resource_add,
            "getResourceQuantity": resource_quantity,
            "accuratePodRequirements": pod_requirements,
            "getPodDependencies": pod_dependencies,
        }


def _with_message(function: Callable[..., Any]) -> Callable[..., tuple[str | None, Any]]:
    """Have a function return what is wrong, if anything is, and what it returns."""

    def call(*arguments: Any) -> tuple[str | None, Any]:
        try:
            return None, function(*arguments)
        except ScriptFailed as error:
            return str(error), None
        except Exception as error:  # noqa: BLE001 - whatever a script made of its arguments
            return f"it could not be read: {type(error).__name__}", None

    return call


def _no_attributes(_: object, name: object, is_setting: object) -> Any:
    raise AttributeError(f"{name!r:.40} is not to be had in a script")


def _workload(template: Any) -> dict[str, Any]:
    if not isinstance(template, dict):
        raise ScriptFailed("a pod template is a table")
    # In kinds of people's own, quantities may be numbers.
    return _with_texts(
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    )


def _with_texts(value: Any, *, is_amounts: bool = False) -> Any:
    if isinstance(value, list):
        return [_with_texts(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    items = cast("dict[str, Any]", value).items()
    if is_amounts:
        return {key: str(each) for key, each in items}
    amounts = ("requests", "limits")
    return {key: _with_texts(each, is_amounts=key in amounts) for key, each in items}


def _words(error: LuaError) -> str:
    text = str(error).partition("\nstack traceback")[0]
    return text.removeprefix("error loading code: ").strip() or type(error).__name__


def serve(sandbox: Sandbox, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more: `[script, function, arguments]` each."""
    for script, function, arguments in _messages(requests):
        try:
            if function:
                answer = {"values": sandbox.call(script, function, arguments)}
            else:
                sandbox.check(script)
                answer = {"values": (None, None)}
        except ScriptFailed as error:
            answer = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - a script's fault or ours; the caller is told
            answer = {"error": f"it could not be run: {type(error).__name__}: {error}"}
        raw = msgspec.json.encode(answer)
        if len(raw) > MOST_ANSWER:
            # A few tables that share a text are small in Lua, and large where they are told apart.
            raw = msgspec.json.encode({"error": "it returned more than an object has room for"})
        answers.write(HEADER.pack(len(raw)) + raw)
        answers.flush()


def _messages(stream: BinaryIO) -> Iterator[tuple[str, str, list[Any]]]:
    while header := stream.read(HEADER.size):
        (size,) = HEADER.unpack(header)
        script, function, arguments = msgspec.json.decode(stream.read(size))
        yield script, function, arguments


def main() -> None:
    """Give up what a script could abuse, and serve whoever holds the other ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_PROCESS_MEMORY, _PROCESS_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    sandbox = Sandbox()
    # Everything is loaded: from here on no file is opened.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    serve(sandbox, sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
