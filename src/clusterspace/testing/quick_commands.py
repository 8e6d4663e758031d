"""`clusterspace`, as shells and `up` start it, without the second that Python takes to import it.

    subprocess.run([quick_commands() / "python", "-m", "clusterspace", "clusters"], ...)
    environment["PATH"] = f"{quick_commands()}:{environment['PATH']}"

Whoever starts a program itself uses `Program`. A page of the documentation is typed into a shell,
and `up` starts its parts with `sys.executable`: for them there are two executables in a directory.
They pass their arguments, environment and open files on to a process that has imported everything,
which forks; signals are passed on to the fork, and its exit code is theirs. The fork ends with the
executable that stands for it, even with one that is killed: to whoever started that, there is one
process. Only two things tell: the fork has a process id of its own, and cannot be stopped by
stopping the other. What is about those, or about the start itself, starts Python anew.
"""

import atexit
import contextlib
import functools
import gc
import marshal
import multiprocessing
import os
import selectors
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from clusterspace.testing.programs import become, forks

_COMMAND: Final = """\
#!/bin/sh
exec {python} -IS {client} {python} {address} {words}"$@"
"""

# It imports next to nothing, and is no module of the package: that would be imported with it.
_CLIENT: Final = """\
import marshal, os, signal, socket, sys

PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2
)

python, address, *words = sys.argv[1:]
if words[:1] != ["-m"]:
    os.execv(python, [python, *words])
umask = os.umask(0)
os.umask(umask)
# A shell has what it starts in the background ignore Ctrl-C, and so on down to whom they start.
ignored = {int(each): signal.getsignal(each) == signal.SIG_IGN for each in PASSED_ON}
asked = marshal.dumps((words[1:], os.getcwd(), dict(os.environ), umask, ignored))
# A signal before there is a process to pass it on to waits for it.
signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
server = socket.socket(socket.AF_UNIX)
server.connect(address)
socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
server.sendall(asked)
process = int.from_bytes(server.recv(4, socket.MSG_WAITALL), "big")


def pass_on(number, _):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


for each in PASSED_ON:
    if not ignored[each]:
        signal.signal(each, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
told = server.recv(4, socket.MSG_WAITALL)
ended = int.from_bytes(told, "big", signed=True) if told else 1
if ended < 0:
    if -ended in PASSED_ON:
        signal.signal(-ended, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


@functools.cache
def quick_commands() -> Path:
    """Return the directory of the executables `python` and `clusterspace`; it ends with us."""
    directory = Path(tempfile.mkdtemp(prefix="quick-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    client, address = directory / "client.py", directory / "socket"
    client.write_text(_CLIENT)
    for name, words in (("python", ""), ("clusterspace", "-m clusterspace ")):
        command = directory / name
        places = {"python": sys.executable, "client": str(client), "address": str(address)}
        quoted = {each: shlex.quote(place) for each, place in places.items()}
        command.write_text(_COMMAND.format(**quoted, words=words))
        command.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    forks.Process(target=_serve, args=(listener, directory / "python"), daemon=True).start()
    listener.close()
    return directory


def _serve(listener: socket.socket, executable: Path) -> None:
    """Fork for everybody who asks, and tell them how it ended, until the test run ends."""
    gc.freeze()
    parent = multiprocessing.parent_process()
    assert parent is not None
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    waiting = selectors.DefaultSelector()
    for each in (listener, reading, parent.sentinel):
        waiting.register(each, selectors.EVENT_READ)
    running: dict[int, socket.socket] = {}
    while True:
        ready = {key.fd for key, _ in waiting.select()}
        if parent.sentinel in ready:
            return
        if reading in ready:
            os.read(reading, 4096)
            # One signal may tell of many; those that end meanwhile are told of by another.
            while (ended := _next_end()) is not None:
                pid, code = ended
                with contextlib.suppress(OSError), running.pop(pid) as client:
                    client.sendall(code.to_bytes(4, "big", signed=True))
        if listener.fileno() in ready:
            client, _ = listener.accept()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                waiting.close()
                listener.close()
                os.close(reading)
                os.close(writing)
                for other in running.values():
                    other.close()
                _work_for(client, executable)
                return  # to `multiprocessing`, which ends the process as Python would
            running[pid] = client


def _wake(_number: int, _frame: object) -> None:
    """Do nothing: that there is a handler has Python write to the pipe."""


def _next_end() -> tuple[int, int] | None:
    """Return the next process that has ended, and how; None while all run."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _work_for(client: socket.socket, executable: Path) -> None:
    """Become the program that a client asks for, in the forked process."""
    # A session of its own: what is sent to the client's process group is passed on, once.
    os.setsid()
    length, files, _, _ = socket.recv_fds(client, 4, 3)
    asked = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    program, directory, environment, umask, ignored = marshal.loads(asked)  # noqa: S302 - ours
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    os.umask(umask)
    # As Python starts: deaf to what the client is deaf to, and not to what we inherited. A test run
    # in the background, and what forks for it, ignores Ctrl-C; and asyncio would leave it at that.
    for number, is_ignored in ignored.items():
        heard = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if is_ignored else heard)
    threading.Thread(target=_end_with, args=(client,), daemon=True).start()
    client.sendall(os.getpid().to_bytes(4, "big"))
    sys.executable = str(executable)
    sys.path.insert(0, directory)  # as `python -m` does
    module, *words = program
    become(module, words, directory, environment)


def _end_with(client: socket.socket) -> None:
    """End as suddenly as the client did: it says nothing more while it is there."""
    with contextlib.suppress(OSError):
        client.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)
