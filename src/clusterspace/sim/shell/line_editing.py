"""What a terminal does with keys: shows them, edits the line, and hands it over when it is done."""

from typing import Final

from clusterspace.sim.shell.processes import Input, Output

_INTERRUPT: Final = 0x03
_END: Final = 0x04
_ENTER: Final = frozenset((0x0A, 0x0D))
_ERASE: Final = frozenset((0x08, 0x7F))


class LineEditor:
    """An Input of whole lines, made from keys; shows what is typed."""

    def __init__(self, keys: Input, screen: Output) -> None:
        self._keys = keys
        self._screen = screen
        self._typed = bytearray()
        self._lines: list[bytes] = []
        self._is_at_end = False

    async def read(self) -> bytes:
        """Return the next line; nothing when Ctrl-D was pressed on an empty one."""
        while not self._lines:
            if self._is_at_end:
                return b""
            pressed = await self._keys.read()
            if not pressed:
                self._is_at_end = True
                break
            for key in pressed:
                await self._press(key)
        return self._lines.pop(0) if self._lines else bytes(self._typed)

    async def _press(self, key: int) -> None:
        if key in _ENTER:
            await self._screen(b"\n")
            self._hand_over(b"\n")
        elif key in _ERASE:
            if self._typed:
                del self._typed[-1]
                await self._screen(b"\b \b")
        elif key == _INTERRUPT:
            await self._screen(b"^C\n")
            self._typed.clear()
            self._hand_over(b"\n")
        elif key == _END:
            self._is_at_end = not self._typed
        else:
            self._typed.append(key)
            await self._screen(bytes((key,)))

    def _hand_over(self, ending: bytes) -> None:
        self._lines.append(bytes(self._typed) + ending)
        self._typed.clear()


def for_screen(screen: Output) -> Output:
    """Return an Output that ends lines as terminals want them ended."""

    async def write(data: bytes) -> None:
        await screen(data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))

    return write
