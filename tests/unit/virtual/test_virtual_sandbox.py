from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import harness.virtual
from harness.errors import HostError
from harness.virtual.adbd.faults import FaultList
from harness.virtual.adbd.shell import ShellRequest, parse_shell_service
from harness.virtual.control import decode_error, encode_error
from harness.virtual.daemon import default_state_dir
from harness.virtual.isolation import Isolation, Sandbox, phone_command
from harness.virtual.sandbox import Interpreter, explain_refusal, find_interpreter

BWRAP = Path("/opt/bwrap")


@pytest.mark.parametrize(
    ("settings", "cause", "permit"),
    [
        (
            {"kernel.apparmor_restrict_unprivileged_userns": "1", "user.max_user_namespaces": "96365"},
            "kernel.apparmor_restrict_unprivileged_userns = 1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            {"user.max_user_namespaces": "0"},
            "user.max_user_namespaces = 0",
            "sudo sysctl -w user.max_user_namespaces=15000",
        ),
        (
            {"kernel.unprivileged_userns_clone": "0", "kernel.apparmor_restrict_unprivileged_userns": "0"},
            "kernel.unprivileged_userns_clone = 0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({"user.max_user_namespaces": "96365"}, "a container's seccomp", "--security-opt seccomp=unconfined"),
    ],
)
def test_a_refusal_names_its_cause_and_the_command_that_permits_it(
    settings: dict[str, str], cause: str, permit: str
) -> None:
    error = explain_refusal(BWRAP, "bwrap: setting up uid map: Permission denied", settings)
    assert error.found is not None
    assert "bwrap: setting up uid map: Permission denied" in error.found
    assert cause in error.found
    assert error.next_step is not None
    assert permit in error.next_step


def _binds(arguments: list[str]) -> list[tuple[str, str]]:
    return [(arguments[n + 1], arguments[n + 2]) for n, word in enumerate(arguments) if word in ("--bind", "--ro-bind")]


def test_a_phone_sees_of_the_host_only_usr_the_interpreter_and_its_own_folder() -> None:
    interpreter = Interpreter(
        program=Path("/apex/com.snapgate.python/bin/python3"),
        mounts=((Path("/home/someone/py"), Path("/apex/com.snapgate.python")),),
        home=Path("/apex/com.snapgate.python"),
    )
    command = phone_command(
        Sandbox(isolation=Isolation.NAMESPACES, program=BWRAP, own_network=True),
        interpreter,
        Path("/state/root"),
        storage_bytes=None,
        listen_fd=5,
        control_fd=6,
    )
    adbd = str(Path(harness.virtual.__file__).with_name("adbd"))
    outside = {source for source, _ in _binds(command) if not source.startswith("/state/root")}
    assert outside <= {"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/home/someone/py", adbd}
    assert not any(target.startswith("/home") for _, target in _binds(command))
    assert {"--unshare-user", "--unshare-pid", "--unshare-net", "--die-with-parent", "--clearenv"} <= set(command)


def test_a_size_makes_the_phones_storage_a_file_system_of_that_size() -> None:
    command = phone_command(
        Sandbox(isolation=Isolation.NAMESPACES, program=BWRAP, own_network=False),
        find_interpreter(),
        Path("/r"),
        storage_bytes=4096,
        listen_fd=5,
        control_fd=6,
    )
    at = command.index("--tmpfs")
    assert command[at - 2 : at + 2] == ["--size", "4096", "--tmpfs", "/data/local/tmp"]
    assert "--unshare-net" not in command


def test_this_interpreter_has_a_place_in_the_phone() -> None:
    interpreter = find_interpreter()
    assert interpreter.program.name.startswith("python")
    assert interpreter.program.is_relative_to("/usr") or interpreter.program.is_relative_to("/apex/com.snapgate.python")


def test_the_daemon_imports_nothing_but_itself_and_the_standard_library() -> None:
    folder = Path(harness.virtual.__file__).with_name("adbd")
    foreign = []
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            foreign += [f"{path.name}: {name}" for name in names if name.split(".")[0] not in sys.stdlib_module_names]
    assert foreign == []


@pytest.mark.parametrize(
    ("service", "request_"),
    [
        ("shell:", ShellRequest(command="", on_terminal=True, framed=False)),
        ("shell:ls -l", ShellRequest(command="ls -l", on_terminal=False, framed=False)),
        ("shell,v2,raw:a:b", ShellRequest(command="a:b", on_terminal=False, framed=True)),
        ("shell,v2,TERM=xterm,pty:top", ShellRequest(command="top", on_terminal=True, framed=True, term="xterm")),
        ("shell,v2,raw:", ShellRequest(command="", on_terminal=False, framed=True)),
    ],
)
def test_a_shell_service_is_read_as_adb_writes_it(service: str, request_: ShellRequest) -> None:
    assert parse_shell_service(service) == request_


def test_a_fault_is_drawn_as_often_as_asked_and_only_for_its_paths() -> None:
    faults = FaultList()
    faults.add({"kind": "corrupt_push", "pattern": "*/libQnn*", "times": 2})
    assert faults.take("corrupt_push", "/data/other") is None
    assert faults.take("no_space", "/data/libQnnHtp.so") is None
    drawn = [faults.take("corrupt_push", "/data/libQnnHtp.so") is not None for _ in range(3)]
    assert drawn == [True, True, False]


@pytest.mark.parametrize(
    "request_", [{"kind": "typo"}, {"kind": "no_space", "times": 0}, {"kind": "no_space", "after_bytes": -1}]
)
def test_a_fault_that_could_never_happen_is_refused(request_: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown fault|must be"):
        FaultList().add(request_)


def test_an_error_crosses_the_control_socket_whole() -> None:
    error = HostError("a", found="b", expected="c", next_step="d")
    again = decode_error(encode_error(error))
    assert type(again) is HostError
    assert str(again) == str(error) == "a; found: b; expected: c; next step: d"


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"SNAPGATE_STATE": "/s", "HOME": "/h"}, "/s/virtual"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/snapgate/virtual"),
        ({"HOME": "/h"}, "/h/.local/state/snapgate/virtual"),
    ],
)
def test_the_state_folder_is_chosen_by_the_environment(environment: dict[str, str], folder: str) -> None:
    assert default_state_dir(environment) == Path(folder)
