"""A shell with nobody at it."""

from dataclasses import dataclass, field

from clusterspace.sim.shell.interpreter import run_program
from clusterspace.sim.shell.processes import Buffer, FileSystem, Process
from clusterspace.testing.clocks import ManualClock

NOW = 1_700_000_000.0


@dataclass
class Shell:
    """One container's files, and what commands in it say."""

    files: FileSystem = field(default_factory=lambda: FileSystem({}, NOW))

    async def run(self, *command: str, stdin: bytes = b"") -> tuple[int, str, str]:
        out, err = Buffer(), Buffer()
        process = Process(
            arguments=command,
            variables={"HOSTNAME": "web-0", "HOME": "/root"},
            directory="/",
            files=self.files,
            clock=ManualClock(NOW),
            stdin=Buffer(stdin),
            stdout=out.write,
            stderr=err.write,
        )
        code = await run_program(process)
        return code, out.content.decode(), err.content.decode()

    async def sh(self, text: str, stdin: bytes = b"") -> tuple[int, str, str]:
        return await self.run("sh", "-c", text, stdin=stdin)
