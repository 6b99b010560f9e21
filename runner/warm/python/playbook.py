"""ansible-playbook in a forked process."""

from __future__ import annotations

import collections
import importlib
import logging
import os
import queue
import shutil
import socket
import sys
import tempfile
import threading
import time
from typing import Any

import ansiblefiles
import connection
import inprocess
import lazycopy
import module
import prepared
import process
import runtrace
import serverstate
import shared
import templates

#: Settings that Ansible reads when it is imported, and keeps where refresh cannot
#: change them. A run in which one of them differs executes ansible-playbook.
KEPT = frozenset("""
    ACTION_WARNINGS ALLOW_BROKEN_CONDITIONALS ALLOW_EMBEDDED_TEMPLATES ANY_ERRORS_FATAL ANSIBLE_COW_ACCEPTLIST ANSIBLE_HOME
    ANSIBLE_PIPELINING BECOME_PLUGIN_PATH
    COLLECTIONS_PATHS COLLECTIONS_SCAN_SYS_PATH DEFAULT_ACTION_PLUGIN_PATH DEFAULT_BECOME_EXE DEFAULT_BECOME_FLAGS
    DEFAULT_CACHE_PLUGIN_PATH DEFAULT_CLICONF_PLUGIN_PATH DEFAULT_CONNECTION_PLUGIN_PATH DEFAULT_DEBUG DEFAULT_EXECUTABLE
    DEFAULT_FACT_PATH DEFAULT_FILTER_PLUGIN_PATH DEFAULT_GATHER_TIMEOUT DEFAULT_HTTPAPI_PLUGIN_PATH
    DEFAULT_INVENTORY_PLUGIN_PATH DEFAULT_JINJA2_EXTENSIONS DEFAULT_JINJA2_NATIVE DEFAULT_KEEP_REMOTE_FILES DEFAULT_LOG_FILTER
    DEFAULT_LOG_PATH
    DEFAULT_LOOKUP_PLUGIN_PATH DEFAULT_MODULE_COMPRESSION DEFAULT_MODULE_PATH DEFAULT_MODULE_UTILS_PATH
    DEFAULT_NETCONF_PLUGIN_PATH DEFAULT_NO_LOG DEFAULT_POLL_INTERVAL DEFAULT_PRIVATE_KEY_FILE DEFAULT_STRATEGY
    DEFAULT_STRATEGY_PLUGIN_PATH DEFAULT_TERMINAL_PLUGIN_PATH DEFAULT_TEST_PLUGIN_PATH DEFAULT_TIMEOUT
    DEFAULT_VARS_PLUGIN_PATH DOC_FRAGMENT_PLUGIN_PATH INJECT_FACTS_AS_VARS INVENTORY_IGNORE_EXTS INVENTORY_IGNORE_PATTERNS PAGER
    PLUGIN_FILTERS_CFG TASK_TIMEOUT YAML_FILENAME_EXTENSIONS
    _CALLBACK_DISPATCH_ERROR_BEHAVIOR _TEMPLAR_SANDBOX_MODE _TEMPLAR_UNKNOWN_TYPE_CONVERSION _TEMPLAR_UNKNOWN_TYPE_ENCOUNTERED
    _TEMPLAR_UNTRUSTED_TEMPLATE_BEHAVIOR
""".split())

#: Settings that Ansible reads when it is imported, and that refresh reads again.
RENEWED = {"ANSIBLE_FORCE_COLOR", "ANSIBLE_NOCOLOR", "DEFAULT_CALLBACK_PLUGIN_PATH"}
#: Environment variables that imports read, and that refresh reads again.
REFRESHED = {"KUBECONFIG"}


def become(argv: list[str], environment: dict) -> None:
    """Become ansible-playbook, or return if the program has to be executed.

    Called in pexpect's child, between fork and exec: the standard streams, the
    session and the working directory are already those of the program.
    """
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    if (why := unsuited(variables)) is not None:
        runtrace.trace("playbook executed:", why)
        return
    runtrace.trace("playbook forked")
    arguments = [os.fsdecode(arg) for arg in argv]
    arguments[0] = shutil.which(arguments[0]) or arguments[0]
    code = 1
    try:
        # This also closes the descriptor whose end tells pexpect that the exec has succeeded.
        process.close_from(3)
        process.reset_signals()
        process.reopen_stdio()
        process.replace_environment(variables)
        process.become_script(arguments, serverstate.PATH)
        refresh()
        code = run(arguments)
    except BaseException:  # noqa: B902, as the interpreter reports it
        import traceback

        traceback.print_exc()
    runtrace.trace_usage("ansible-playbook")
    process.finish(code)


def unsuited(environment: dict[str, str]) -> str | None:
    """Return why ansible-playbook has to be executed for a run with this environment;
    None if this process can become it. May set os.environ.
    """
    base = serverstate.ENVIRONMENT
    for name in base.keys() | environment.keys():
        if base.get(name) == environment.get(name) or name in REFRESHED:
            continue
        if name.startswith(serverstate.EARLY) or name in serverstate.READ and not name.startswith(("ANSIBLE_", "RUNNER_")):
            return name
    process.replace_environment(environment)
    if ansiblefiles.config_file() != serverstate.CONFIG_FILE:
        return "the configuration file"
    return next((name for name, value in settings().items() if is_kept(name) and value != serverstate.SETTINGS[name]), None)


def is_kept(name: str) -> bool:
    """Tell whether a run with another value of a setting executes ansible-playbook."""
    return name in KEPT or name.startswith("COLOR_")


_settings: dict[str, object] = {}


def settings() -> dict[str, object]:
    """Return Ansible's settings for the environment at the first call, without those
    whose evaluation creates directories.
    """
    import ansible.constants as constants

    if not _settings:
        known = dict(vars(constants))
        for name, definition in constants.config.get_configuration_definitions().items():
            if definition.get("type") not in ("tmp", "tmppath", "temppath"):
                _settings[name] = known[name] = constants.config.get_config_value(name, variables=known)
    return _settings


def refresh() -> None:
    """Redo what Ansible and its libraries did once, when the server imported them."""
    import ansible.cli
    import ansible.constants as constants
    import ansible.executor.module_common as module_common
    import ansible.plugins.loader as loader
    import ansible.utils.color
    import ansible.utils.ssh_functions
    import ansible.utils.vars
    from ansible.utils.display import Display

    time.tzset()
    shared.renew()
    # ansible-runner has configured logging differently.
    logging.root.handlers[:] = serverstate.LOG
    logging.root.setLevel(logging.INFO if serverstate.LOG else logging.WARNING)
    tempfile.tempdir = None
    ansible.cli.check_blocking_io()
    for name, value in settings().items():
        constants.set_constant(name, value)
    for name, definition in constants.config.get_configuration_definitions().items():
        if name not in settings():
            constants.set_constant(name, constants.config.get_config_value(name, variables=vars(constants)))
    loader.callback_loader.config = as_list(constants.DEFAULT_CALLBACK_PLUGIN_PATH)
    module_common.compile = prepared.compile_imports
    if os.environ.get("PATH") != serverstate.ENVIRONMENT.get("PATH"):
        ansible.utils.ssh_functions._HAS_CONTROLPERSIST.clear()
    prefer_files(loader.PluginLoader)
    prepared.install()
    wait_for_results()
    inprocess.install()
    lazycopy.install()
    templates.install()
    # This is part of the IDs of plays and tasks. Each run gets its own, as if Ansible were imported again.
    ansible.utils.vars.random_int = os.urandom(4).hex()
    importlib.reload(ansible.utils.color)
    Display().__init__()

    config: Any = sys.modules.get("kubernetes.config.kube_config")
    package: Any = sys.modules.get("kubernetes.config")
    if config is not None:
        location = os.environ.get("KUBECONFIG", "~/.kube/config")
        config.KUBE_CONFIG_DEFAULT_LOCATION = package.KUBE_CONFIG_DEFAULT_LOCATION = location


def prefer_files(loader: Any) -> None:
    """Let a project's plugin be loaded that has the name of one of Ansible's.

    If a module is already imported under the name of a plugin, the loader assumes
    that it has loaded this plugin before. Here, the server may have imported
    Ansible's plugin under the name.
    """
    ordinary = loader._load_module_source
    loaded: set[str] = set()

    def load(self: Any, *args: str, **kwargs: str) -> object:
        name = kwargs.get("python_module_name") or (args[0] if args[0].startswith("ansible_collections.") else f"{self.package}.{args[0]}")
        path = kwargs.get("path") or args[1]
        present = sys.modules.get(name)
        if name not in loaded and present is not None and getattr(present, "__file__", None) != path:
            del sys.modules[name]
        loaded.add(name)
        return ordinary(self, *args, **kwargs)

    loader._load_module_source = load


#: How long a strategy waits for a result before it checks whether its workers
#: are alive, in seconds.
LOOK = 0.05


def wait_for_results() -> None:
    """Let strategies wait until a result arrives, instead of looking for one a
    thousand times a second.
    """
    import ansible.constants as constants
    import ansible.plugins.strategy as strategy

    arrived = threading.Event()

    class Results(collections.deque):
        def append(self, result: object) -> None:
            super().append(result)
            arrived.set()

    class Calls(queue.Queue):
        """The queue of the calls that workers make to the strategy, from ansible-core 2.20 on."""

        def put(self, call: object, block: bool = True, timeout: float | None = None) -> None:
            super().put(call, block, timeout)
            arrived.set()

    class Time:
        """The module time, as strategies use it."""

        def __getattr__(self, name: str) -> object:
            return getattr(time, name)

        @staticmethod
        def sleep(seconds: float) -> None:
            if seconds != constants.DEFAULT_INTERNAL_POLL_INTERVAL:
                time.sleep(seconds)
            elif arrived.wait(LOOK):
                arrived.clear()

    ordinary = strategy.StrategyBase.__init__

    def init(self: strategy.StrategyBase, *args: Any, **kwargs: Any) -> None:
        ordinary(self, *args, **kwargs)
        self._results = Results(self._results)
        if hasattr(self, "_rpc_queue"):
            self._rpc_queue = Calls()

    strategy.StrategyBase.__init__ = init
    strategy.time = Time()


def as_list(value: object) -> list:
    """Return the list that PluginLoader makes of its argument config."""
    if not value:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def run(argv: list[str]) -> int:
    """Run the command line and return the exit code. A second process forks modules for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = None
    try:
        pid = os.fork()
    except OSError:
        pass  # too many processes: requests cannot be sent, and modules are executed the ordinary way
    if pid == 0:
        ours.close()
        if connection.workers_detach():
            os.setsid()  # as workers do, so that modules have no terminal
        module.serve(theirs)
    theirs.close()
    connection.install(ours)
    try:
        from ansible.cli.playbook import main

        main(argv)
        return 0
    except SystemExit as error:
        return process.exit_code(error)
    finally:
        # Closing is not enough: a process that a plugin has forked and left behind may have the socket, too.
        if pid is not None:
            ours.shutdown(socket.SHUT_RDWR)
            os.waitpid(pid, 0)
        ours.close()
