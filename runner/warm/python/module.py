"""Modules in forked processes.

A process that is forked before ansible-playbook does anything forks once more
for each module: a module finds the interpreter as if it had just been started,
with libraries that happen to be imported.
"""

from __future__ import annotations

import atexit
import base64
import errno
import io
import logging
import os
import re
import select
import signal
import socket
import struct
import sys
import types
import zipfile

import prepared
import process
import quickyaml
import runtrace
import serverstate
import switches
import utilities

#: Longest request that a sequenced packet takes for certain.
LIMIT = 128 << 10
#: What is answered in place of a module's end where no process could be forked for it.
NOT_FORKED = b"-"
#: What modules do not find.
HIDDEN: list[types.ModuleType] = []


def execute(channel: socket.socket, interpreter: str, path: str, environment: dict[str, str],
            directory: str | None) -> tuple[int, bytes, bytes] | None:
    """Execute the module file by a name of this interpreter; return exit code, stdout and stderr as the shell
    would. None if it has to go the ordinary way.
    """
    fields = [interpreter, path, directory or os.getcwd(), process.umask(), *(f"{name}={value}" for name, value in environment.items())]
    message = b"\0".join(os.fsencode(field) for field in fields)
    if len(message) > LIMIT or not is_ansiballz(path):
        return None
    stdin, unused = os.pipe2(os.O_CLOEXEC)
    os.close(unused)  # its end is reached at once
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    end_read, end_write = os.pipe2(os.O_CLOEXEC)
    try:
        socket.send_fds(channel, [message], [stdin, out_write, err_write, end_write])
    except OSError:
        for descriptor in (out_read, err_read, end_read):
            os.close(descriptor)
        return None
    finally:
        for descriptor in (stdin, out_write, err_write, end_write):
            os.close(descriptor)
    stdout, stderr = drain(out_read, err_read)
    end = os.read(end_read, 4)
    os.close(end_read)
    if end == NOT_FORKED:
        return None
    if len(end) != 4:
        raise RuntimeError("the process that forks modules has ended")
    code = os.waitstatus_to_exitcode(struct.unpack("i", end)[0])
    if code < 0:
        # The shell would say so, and end with that code.
        if -code not in (signal.SIGINT, signal.SIGPIPE):
            stderr += (signal.strsignal(-code) or f"Signal {-code}").encode() + b"\n"
        code = 128 - code
    return code, stdout, stderr


def drain(*descriptors: int) -> list[bytes]:
    """Read all descriptors to their ends and close them."""
    parts: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left:
        for descriptor, _ in poll.poll():
            data = os.read(descriptor, 1 << 16)
            if data:
                parts[descriptor].append(data)
            else:
                poll.unregister(descriptor)
                left -= 1
    for descriptor in descriptors:
        os.close(descriptor)
    return [b"".join(parts[descriptor]) for descriptor in descriptors]


def is_ansiballz(path: str) -> bool:
    """Tell whether a file is a Python module as Ansible wraps them."""
    try:
        with open(path, "rb") as file:
            return b"\n_ANSIBALLZ_WRAPPER = True" in file.read(1 << 12)
    except OSError:
        return False


def serve(channel: socket.socket) -> None:
    """Fork for each request until no process can make one. It does not return."""
    code = 1
    try:
        forget_controller()
        process.TITLE.write(["rolewright-modules"])
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        waiting: dict[int, int] = {}
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        done = False
        while not done:
            for descriptor, _ in poll.poll():
                if descriptor == wake_read:
                    try:
                        os.read(wake_read, 512)
                    except BlockingIOError:
                        pass
                    report(waiting)
                else:
                    done = not fork(channel, waiting)
        runtrace.trace_usage("modules")
        code = 0
    except BaseException:  # noqa: B902, this process must not go on as another
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def report(waiting: dict[int, int]) -> None:
    """Tell how modules ended to those who wait for it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        end = waiting.pop(pid, None)
        if end is not None:
            answer(end, struct.pack("i", status))


def answer(end: int, what: bytes) -> None:
    """Write to who waits for the end of a module, and may be gone."""
    try:
        os.write(end, what)
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
    os.close(end)


def fork(channel: socket.socket, waiting: dict[int, int]) -> bool:
    """Serve a request; return False if there will be none any more."""
    message, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 4)
    if not message:
        return False
    pid = None
    try:
        pid = os.fork()
    except OSError:
        pass  # a lack of processes, of which the ordinary way tells if it lasts
    if pid == 0:
        become(message, descriptors)
    *streams, end = descriptors
    for descriptor in streams:
        os.close(descriptor)
    if pid is None:
        answer(end, NOT_FORKED)
    else:
        waiting[pid] = end
    return True


def forget_controller() -> None:
    """Remove what a module must not find.

    Exit handlers are the controller's too: they would remove its temporary files. So is the file of log_path.
    """
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    atexit._clear()
    atexit.register(logging.shutdown)
    if "multiprocessing.util" in sys.modules:
        atexit.register(sys.modules["multiprocessing.util"]._exit_function)
    HIDDEN.extend(utilities.hide())
    quickyaml.install()


def become(message: bytes, descriptors: list[int]) -> None:
    """Be the interpreter that executes a module file. It does not return."""
    code = 1
    try:
        process.reset_signals()
        interpreter, path, directory, umask, *assignments = message.split(b"\0")
        for target, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, target)
        process.close_from(3)
        os.chdir(directory)
        os.umask(int(umask, 8))
        process.replace_environment(dict(os.fsdecode(entry).partition("=")[::2] for entry in assignments))
        process.reopen_stdio()
        sys.executable = os.fsdecode(interpreter)
        code = execute_file(os.fsdecode(path))
    except BaseException as error:  # noqa: B902, as the interpreter reports it
        error.__traceback__ = without(error.__traceback__, __file__)
        sys.excepthook(type(error), error, error.__traceback__)
    process.finish(code)


def without(frames: types.TracebackType | None, path: str) -> types.TracebackType | None:
    """Return the frames below those of a file."""
    while frames is not None and frames.tb_frame.f_code.co_filename == path:
        frames = frames.tb_next
    return frames


def execute_file(path: str) -> int:
    """Execute a script; return the exit code."""
    import locale
    import tempfile

    tempfile.tempdir = None
    locale.setlocale(locale.LC_ALL, "C")
    locale.setlocale(locale.LC_CTYPE, "")
    forget_host()
    main = process.become_script([path], serverstate.PATH)
    # The script is to have as many frames as if it were the first.
    frame: types.FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(sys.getrecursionlimit() + depth + 2)  # exec counts twice
    with open(path, "rb") as file:
        source = file.read()
    archive = find_archive(source)
    own_libraries = archive is None or looks_elsewhere(archive)
    runtrace.count("modules libraries" if own_libraries else "modules forked")
    if own_libraries:
        runtrace.trace("module executed", path)
        os.execv(sys.executable, [sys.executable, path])
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
        return 0
    except SystemExit as error:
        return process.exit_code(error)


#: The line with the archive in the file of a module: of ansible-core 2.14, of
#: 2.19. The arguments are in one other line, with any text.
ARCHIVE = re.compile(rb"""    ZIPDATA = \"""([A-Za-z0-9+/=]+)\"""|zip_data='([A-Za-z0-9+/=]+)',""")


def forget_host() -> None:
    """Forget what was asked of the machine, if it has another name by now."""
    import platform

    known = getattr(platform, "_uname_cache", None)
    if known is not None and known.node != os.uname().nodename:
        platform._uname_cache = None  # type: ignore[attr-defined]


def find_archive(source: bytes) -> bytes | None:
    """Return the archive in the file of a module, in base64; None if there is not
    exactly one where it is expected.
    """
    found = [match for line in source.split(b"\n") if (match := ARCHIVE.fullmatch(line))]
    return found[0][found[0].lastindex or 0] if len(found) == 1 else None


#: What a source has that may look for libraries in places of its own.
PLACES = re.compile(rb"\bsys\s*\.\s*path\b|\bfrom\s+sys\s+import\b|\baddsitedir\b")

#: Modules that import the turbo mode only where ENABLE_TURBO_MODE is set.
KUBERNETES = "ansible_collections/kubernetes/core/plugins/modules/"
#: Files of the turbo mode, which these modules bring along where the collection
#: cloud.common is installed, used or not.
TURBO = "ansible_collections/cloud/common/plugins/module_utils/turbo/"
#: The lines in which they mention the search path. It begins with the module's
#: own archive, as Ansible puts it there. A module reads that entry to tell it to
#: the turbo server, which it starts in a new Python; the other lines are that
#: server's, which puts the archive of the module at the beginning, and takes it
#: away. None of them adds a place of other libraries to that of a module.
TURBO_LINES = re.compile(rb"""^\ *(?:
    ansiblez_path\ =\ sys\.path\[0\]
    |\#\ Add\ the\ Ansiblez_path\ in\ sys\.path
    |sys\.path\.insert\(0,\ self\.ansiblez_path\)
    |sys\.path\ =\ \[i\ for\ i\ in\ sys\.path\ if\ i\ !=\ self\.ansiblez_path\]
)$""", re.MULTILINE | re.VERBOSE)


def looks_elsewhere(archive: bytes) -> bool:
    """Tell whether a module may bring libraries along. It would get those that
    are imported already. What is Ansible's own has none.
    """
    if serverstate.key(archive) in prepared.USUAL:
        return False
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))) as file:
        unused = "ENABLE_TURBO_MODE" not in os.environ and any(name.startswith(KUBERNETES) for name in file.namelist())
        return any(names_places(info.filename, file.read(info), unused) for info in file.infolist()
                   if info.filename.endswith(".py") and (info.file_size, info.CRC) not in serverstate.CODES)


def names_places(name: str, source: bytes, unused: bool) -> bool:
    """Tell whether a file of an archive may look for libraries in places of its own; unused tells of the turbo mode."""
    if unused and name.startswith(TURBO) and not switches.without("turbo"):
        source = TURBO_LINES.sub(b"", source)
    return PLACES.search(source) is not None
