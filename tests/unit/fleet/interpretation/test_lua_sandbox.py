"""What a script can do, and what it cannot, however it is written."""

from typing import Any

import pytest

from clusterspace.errors import ScriptFailed
from clusterspace.fleet.interpretation.lua_sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox(most_steps=200_000, most_memory=8 * 1024 * 1024)


def call(sandbox: Sandbox, body: str, *arguments: Any) -> tuple[Any, Any]:
    return sandbox.call(f"function F(a, b) {body} end", "F", list(arguments))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("while true do end", "steps"),
        ("while true do pcall(function() while true do end end) end", "steps"),
        ("xpcall(function() while true do end end, function() while true do end end)", "steps"),
        ("xpcall(error, function() while true do end end)", "steps"),
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("local s = 'x' while true do s = s .. s end", "memory"),
        ("return string.rep('x', 1e9)", "memory"),
        ("local t = {} while true do t[#t + 1] = {} end", "memory|steps"),
        ("return io.open('/etc/passwd')", "'io'"),
        ("return os.execute('true')", "'execute'"),
        ("return os.getenv('HOME')", "'getenv'"),
        ("return python.eval('1')", "'python'"),
        ("return debug.getinfo(1)", "'debug'"),
        ("return coroutine.create(F)", "'coroutine'"),
        ("return package.loadlib", "'package'"),
        ("return require('io')", "only kube"),
        ("return dofile('/etc/passwd')", "not to be had"),
        ("return loadstring('return 1')()", "not to be had"),
        ("return getmetatable('').__index", "not to be had"),
        ("return setmetatable({}, {})", "not to be had"),
        ("return getfenv(0)", "not to be had"),
        ("return string.dump(F)", "'dump'"),
        ("return ('').dump(F)", "'dump'"),
        ("return ('x'):rep(9e7)", "memory"),
        ("return ('x'):rep(9e3):gsub('x', ('y'):rep(9e5))", "memory"),
        ("return (('x'):gsub('x', function() while true do end end))", "steps"),
        ("table.sort({3, 2, 1}, function() while true do end end)", "steps"),
        ("local t = {} for i = 1, 9e6 do t[i] = i end return table.concat(t)", "memory|steps"),
        ("local t = {} for i = 1, 9e3 do t = {t} end return t", "deep"),
        ("return unpack({}, 1, 1e8)", "too many results"),
        ("return " + "(" * 1000 + "1" + ")" * 1000, "syntax levels"),
        ("_G._G.pcall = nil _G.error = nil while true do end", "steps"),
        ("return newproxy(true)", "not to be had"),
        ("return rawset(string, 'x', 1)", "not to be had"),
        ("return os.remove('/tmp/x')", "'remove'"),
        ("return require('kube').resourceAdd('1e99999999')", "not a quantity"),
        ("return require('kube').resourceAdd.__globals__", "index field"),
        ("return require('kube').getPodDependencies('x')", "a pod template is a table"),
        ("return require('kube').resourceAdd('abc')", "'abc' is not a quantity"),
        ("return require('kube').getResourceQuantity('-1')", "less than nothing"),
        ("local t = {} t.t = t return t", "deep"),
        ("return {[1] = 'a', [3] = 'b'}", "holes"),
        ("return {[1] = 'a', b = 'c'}", "not all text"),
        ("return 0/0", "JSON"),
        ("return F", "a function"),
        ("return '\\255'", "UTF-8"),
        ("error('as it was told')", "as it was told"),
        ("return nil .. 'x'", "attempt to concatenate"),
    ],
)
def test_what_a_script_must_not_do_ends_with_a_sentence(
    sandbox: Sandbox, body: str, says: str
) -> None:
    with pytest.raises(ScriptFailed, match=says):
        call(sandbox, body)

    assert call(sandbox, "return 'the next one is well'")[0] == "the next one is well"


def test_what_is_compiled_is_not_run(sandbox: Sandbox) -> None:
    # The beginning of what `string.dump` returns. Behind it anything may be written.
    with pytest.raises(ScriptFailed, match="it is compiled, and not text"):
        sandbox.check("\x1bLuaQ\x00\x01\x04")
    with pytest.raises(ScriptFailed, match="it is compiled, and not text"):
        sandbox.call("\x1bLuaQ\x00\x01\x04", "F", [])


def test_failures_of_the_library_are_text_also_for_who_catches_them(sandbox: Sandbox) -> None:
    body = "local ok, why = pcall(require('kube').resourceAdd, 'abc') return type(why), why"

    assert call(sandbox, body)[0] == "string"


def test_a_script_leaves_nothing_to_the_next(sandbox: Sandbox) -> None:
    call(sandbox, "left = 1 string.format = nil table.left = 1 require('kube').left = 1 return 1")

    body = "return left == nil and string.format ~= nil and table.left == nil, require('kube').left"
    assert call(sandbox, body) == (True, None)


@pytest.mark.parametrize(
    "value",
    [None, True, 7, 1.5, "text", "ünïcode", [1, 2, 3], {"a": {"b": [{"c": 1}]}}, [[1], [2]]],
)
def test_data_comes_back_as_it_went(sandbox: Sandbox, value: Any) -> None:
    assert call(sandbox, "return a", value) == (value, None)


def test_tables_are_gone_through_in_one_order(sandbox: Sandbox) -> None:
    body = "local s = '' for k, v in pairs(a) do s = s .. k a[k] = nil end return s, next(a)"
    names = {f"k{number}": number for number in range(9, -1, -1)}

    assert call(sandbox, body, names) == ("".join(sorted(names)), None)


def test_what_is_not_there_is_nil_and_not_passed_by(sandbox: Sandbox) -> None:
    assert call(sandbox, "return a == nil, b", None, "second") == (True, "second")


def test_a_script_that_cannot_be_read_is_told_with_its_line(sandbox: Sandbox) -> None:
    with pytest.raises(ScriptFailed, match="script:2:"):
        sandbox.check("local a = 1\nlocal = 2")
    with pytest.raises(ScriptFailed, match="there is no function F"):
        sandbox.call("x = 1", "F", [])


def test_karmadas_library_counts_as_bindings_do(sandbox: Sandbox) -> None:
    pod = {
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "serviceAccountName": "runner",
            "containers": [
                {"resources": {"limits": {"cpu": 1}, "requests": {"memory": "64Mi"}}},
                {"resources": {"requests": {"cpu": "500m"}}, "envFrom": [
                    {"configMapRef": {"name": "settings"}}
                ]},
            ],
        }
    }  # fmt: skip

    assert call(sandbox, "return require('kube').accuratePodRequirements(a)", pod)[0] == {
        "nodeClaim": {"nodeSelector": {"disk": "ssd"}},
        "resourceRequest": {"cpu": "1500m", "memory": "64Mi"},
    }
    found = call(sandbox, "return require('kube').getPodDependencies(a, b)", pod, "prod")[0]
    assert [(each["kind"], each["namespace"], each["name"]) for each in found] == [
        ("ConfigMap", "prod", "settings"),
        ("ServiceAccount", "prod", "runner"),
    ]
    sums = "k.resourceAdd('100m', '1', nil, 2), k.getResourceQuantity(a)"
    body = f"local k = require('kube') return {sums}"
    assert call(sandbox, body, "1Ki") == ("3100m", 1024)
