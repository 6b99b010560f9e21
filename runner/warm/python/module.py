"""Modules in forked processes.

Before ansible-playbook does anything, it forks a process that forks again for each
module. So a module finds the interpreter as if it had just been started, except
that libraries are already imported.
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

#: The length up to which a request certainly fits into a sequenced packet.
LIMIT = 128 << 10
#: The answer if no process could be forked for a module, in place of the module's exit status.
NOT_FORKED = b"-"
#: What was removed from sys.modules, so that modules do not find it.
HIDDEN: list[types.ModuleType] = []


def execute(channel: socket.socket, interpreter: str, path: str, environment: dict[str, str],
            directory: str | None) -> tuple[int, bytes, bytes] | None:
    """Execute a module file in a forked process, with interpreter as its sys.executable. Return the exit code, stdout and
    stderr that the shell would return; None if the module has to be executed the ordinary way.
    """
    fields = [interpreter, path, directory or os.getcwd(), process.umask(), *(f"{name}={value}" for name, value in environment.items())]
    message = b"\0".join(os.fsencode(field) for field in fields)
    if len(message) > LIMIT or not is_ansiballz(path):
        return None
    stdin, unused = os.pipe2(os.O_CLOEXEC)
    os.close(unused)  # so that stdin is empty
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
        # The shell would name the signal, and end with this code.
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
    """Tell whether a file is a Python module in Ansible's wrapper."""
    try:
        with open(path, "rb") as file:
            return b"\n_ANSIBALLZ_WRAPPER = True" in file.read(1 << 12)
    except OSError:
        return False


def serve(channel: socket.socket) -> None:
    """Fork for each request until no process can send another one. This function does not return."""
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
    except BaseException:  # noqa: B902, this process must not continue as ansible-playbook
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def report(waiting: dict[int, int]) -> None:
    """Reap the modules that have ended, and send their exit statuses to the processes that wait for them."""
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
    """Write to the process that waits for a module, which may be gone, and close the descriptor."""
    try:
        os.write(end, what)
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
    os.close(end)


def fork(channel: socket.socket, waiting: dict[int, int]) -> bool:
    """Receive a request and fork a process for it. Return False if there will be no more requests."""
    message, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 4)
    if not message:
        return False
    pid = None
    try:
        pid = os.fork()
    except OSError:
        pass  # too many processes: if that lasts, the ordinary way reports it
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
    """Remove what belongs to the controller, and what modules must not find.

    This includes the exit handlers, which would remove the controller's temporary files, and the handler of log_path.
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
    """Become the interpreter that executes a module file. This function does not return."""
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
    """Remove the frames of a file from the beginning of a traceback, and return the rest."""
    while frames is not None and frames.tb_frame.f_code.co_filename == path:
        frames = frames.tb_next
    return frames


def execute_file(path: str) -> int:
    """Execute a script, and return the exit code. A script that may need other libraries is executed in a new Python."""
    import locale
    import tempfile

    tempfile.tempdir = None
    locale.setlocale(locale.LC_ALL, "C")
    locale.setlocale(locale.LC_CTYPE, "")
    forget_host()
    main = process.become_script([path], serverstate.PATH)
    # Let the script recurse as deep as if its frame were the first.
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


#: The line of a module file that holds the archive, in ansible-core 2.14 and in 2.19.
#: The arguments, which may contain any text, are in another line.
ARCHIVE = re.compile(rb"""    ZIPDATA = \"""([A-Za-z0-9+/=]+)\"""|zip_data='([A-Za-z0-9+/=]+)',""")


def forget_host() -> None:
    """Forget what the module platform knows about the machine, if the host name has changed."""
    import platform

    known = getattr(platform, "_uname_cache", None)
    if known is not None and known.node != os.uname().nodename:
        platform._uname_cache = None  # type: ignore[attr-defined]


def find_archive(source: bytes) -> bytes | None:
    """Return the archive in a module file, in base64; None unless exactly one line
    holds an archive.
    """
    found = [match for line in source.split(b"\n") if (match := ARCHIVE.fullmatch(line))]
    return found[0][found[0].lastindex or 0] if len(found) == 1 else None


#: What source code contains if it may add directories to the search path.
PLACES = re.compile(rb"\bsys\s*\.\s*path\b|\bfrom\s+sys\s+import\b|\baddsitedir\b")

#: The directory of modules that import the turbo mode only if ENABLE_TURBO_MODE is set.
KUBERNETES = "ansible_collections/kubernetes/core/plugins/modules/"
#: The directory of the turbo mode. If the collection cloud.common is installed, the
#: archives of these modules contain its files, used or not.
TURBO = "ansible_collections/cloud/common/plugins/module_utils/turbo/"
#: The lines of these files that mention the search path. Ansible puts the module's
#: archive at the beginning of that path. A module reads this entry and passes it to
#: the turbo server, which it starts in a new Python. The other lines belong to the
#: server: it puts the module's archive at the beginning of its own path, and removes
#: it again. No line adds a directory to the search path of a module.
TURBO_LINES = re.compile(rb"""^\ *(?:
    ansiblez_path\ =\ sys\.path\[0\]
    |\#\ Add\ the\ Ansiblez_path\ in\ sys\.path
    |sys\.path\.insert\(0,\ self\.ansiblez_path\)
    |sys\.path\ =\ \[i\ for\ i\ in\ sys\.path\ if\ i\ !=\ self\.ansiblez_path\]
)$""", re.MULTILINE | re.VERBOSE)


def looks_elsewhere(archive: bytes) -> bool:
    """Tell whether a module may look for libraries in other directories. In a forked
    process, it would get those that are already imported. Archives that the server has
    prepared are searched only in the turbo mode.
    """
    if serverstate.key(archive) in prepared.USUAL and "ENABLE_TURBO_MODE" not in os.environ:
        return False
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))) as file:
        unused = "ENABLE_TURBO_MODE" not in os.environ and any(name.startswith(KUBERNETES) for name in file.namelist())
        return any(names_places(info.filename, file.read(info), unused) for info in file.infolist()
                   if info.filename.endswith(".py") and (info.file_size, info.CRC) not in serverstate.CODES)


def names_places(name: str, source: bytes, unused: bool) -> bool:
    """Tell whether a file of an archive may add directories to the search path. unused says that the turbo mode is not used."""
    if unused and name.startswith(TURBO) and not switches.without("turbo"):
        source = TURBO_LINES.sub(b"", source)
    return PLACES.search(source) is not None
