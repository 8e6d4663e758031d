"""What a terminal does with keys."""

from clusterspace.sim.shell.processes import Buffer, LineEditor, for_screen


async def typed(keys: bytes) -> tuple[list[bytes], bytes]:
    screen = Buffer()
    editor = LineEditor(Buffer(keys), for_screen(screen.write))
    lines: list[bytes] = []
    while line := await editor.read():
        lines.append(line)
    return lines, screen.content


async def test_a_line_is_shown_as_it_is_typed_and_handed_over_on_enter() -> None:
    assert await typed(b"ls\r\x04") == ([b"ls\n"], b"ls\r\n")


async def test_a_wrong_key_can_be_taken_back() -> None:
    assert await typed(b"lx\x7fs\r\x04") == ([b"ls\n"], b"lx\b \bs\r\n")


async def test_ctrl_c_throws_the_line_away() -> None:
    assert await typed(b"rm -r\x03\x04") == ([b"\n"], b"rm -r^C\r\n")
