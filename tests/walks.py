"""Which modules of ours a piece of work passes through, and how often it jumps between them.

A reader follows the same path: every module is a file to open, and every function that calls into
another module is a reason to. A jump is such a pair, and counts once, however many members or rows
it is made for. Only the thread that walks is looked at: what others do, in threads of their own, is
left out, and so is code that nobody wrote, like the constructors of dataclasses.
"""

import sys
from collections import Counter
from types import FrameType
from typing import Any, Self

PACKAGE = "clusterspace."
_BEGUN = 4
"""A coroutine that goes on after a wait is entered again, behind its first instructions."""


class Walk:
    """Notes every call of a function of ours, in this thread, for as long as the block lasts."""

    def __init__(self, *, beside: str = "") -> None:
        self._beside = beside
        """The code, by name, of a task that goes on beside the work and is none of it."""
        self.calls: Counter[str] = Counter()
        self.jumps: Counter[tuple[str, str]] = Counter()
        """From which function to which other module."""

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        module = _module_of(frame)
        is_written = frame.f_code.co_filename != "<string>"
        is_call = event == "call" and frame.f_lasti <= _BEGUN
        if not (is_call and is_written and module.startswith(PACKAGE)):
            return
        caller = frame.f_back
        while caller is not None and not _module_of(caller).startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_qualname == self._beside:
            return
        self.calls[module] += 1
        if caller is not None and _module_of(caller) != module:
            self.jumps[f"{_module_of(caller)}.{caller.f_code.co_qualname}", module] += 1

    @property
    def modules(self) -> list[str]:
        """The modules that were passed, by name."""
        return sorted(self.calls)

    def __str__(self) -> str:
        """Every module, and below it its functions that jump, in the order of their first jump."""
        lines = [f"{len(self.calls)} modules, {len(self.jumps)} jumps between them"]
        for module in self.modules:
            lines.append(f"  {module.removeprefix(PACKAGE)}")
            targets: dict[str, list[str]] = {}
            for caller, target in self.jumps:
                if caller.startswith(f"{module}."):
                    jumping = caller.removeprefix(f"{module}.")
                    targets.setdefault(jumping, []).append(target.removeprefix(PACKAGE))
            lines += [f"    {caller} -> {', '.join(found)}" for caller, found in targets.items()]
        return "\n".join(lines)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
