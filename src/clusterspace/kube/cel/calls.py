"""Choosing the way to call a function: by type where types are known, by value where not."""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Final, cast

from clusterspace.kube.cel.faults import no_overload
from clusterspace.kube.cel.programs import Code, Frame, Run
from clusterspace.kube.cel.signatures import Overload
from clusterspace.kube.cel.types import DYN, Bindings, Type, fits, is_loose, resolved
from clusterspace.kube.cel.values import Meter, kind_of

_SIZED: Final = ("string", "bytes", "list", "map", "dyn")


def call_code(overloads: Sequence[Overload], args: Sequence[Code]) -> Code | None:
    """Return the compiled call; None when no overload takes arguments of these types."""
    candidates: list[Overload] = []
    results: list[Type] = []
    for overload in overloads:
        bindings: Bindings = {}
        if _takes(overload, args, bindings):
            candidates.append(overload)
            results.append(resolved(overload.result, bindings))
    if not candidates:
        return None
    result = results[0] if all(each == results[0] for each in results) else DYN
    is_sure = len(candidates) == 1 and not any(_is_vague(arg.type) for arg in args)
    runs = [arg.run for arg in args]
    pays = any(arg.type.name in _SIZED for arg in args)
    if is_sure:
        return Code(result, _direct(candidates[0], runs, pays=pays))
    return Code(result, _dispatched(candidates, runs))


def _takes(overload: Overload, args: Sequence[Code], bindings: Bindings) -> bool:
    if len(overload.args) != len(args):
        return False
    pairs = zip(overload.args, args, strict=True)
    return all(fits(wanted, given.type, bindings) for wanted, given in pairs)


def _is_vague(given: Type) -> bool:
    return is_loose(given) or any(_is_vague(param) for param in given.params)


def _direct(overload: Overload, runs: Sequence[Run], *, pays: bool) -> Run:
    function = _metered(overload)

    def call(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        if pays:
            _pay(frame.meter, values)
        return function(frame.meter, *values)

    return call


def _dispatched(candidates: Sequence[Overload], runs: Sequence[Run]) -> Run:
    functions = [(each.args, _metered(each)) for each in candidates]

    def call(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        _pay(frame.meter, values)
        for wanted, function in functions:
            if all(_is_of(value, each) for value, each in zip(values, wanted, strict=True)):
                return function(frame.meter, *values)
        raise no_overload()

    return call


def _metered(overload: Overload) -> Callable[..., Any]:
    run = overload.run
    if overload.is_metered:
        return run

    def unmetered(_: Meter, *values: Any) -> Any:
        return run(*values)

    return unmetered


def _pay(meter: Meter, values: Sequence[Any]) -> None:
    sized = cast("Iterable[Sized]", filter(_is_sized, values))
    meter.spend(sum(len(value) for value in sized) // 10)


def _is_sized(value: Any) -> bool:
    return isinstance(value, str | bytes | list | dict)


def _is_of(value: Any, wanted: Type) -> bool:
    """Tell whether a value is of a type, as far as its first element shows."""
    if wanted.is_parameter or is_loose(wanted):
        return True
    if kind_of(value) != wanted.name:
        return False
    if isinstance(value, list) and value and wanted.params:
        return _is_of(cast("list[Any]", value)[0], wanted.params[0])
    return True
