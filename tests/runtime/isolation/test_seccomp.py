"""The system call filter, for both architectures: its numbers against the kernel's own headers, its
program in a small interpreter of classic BPF. What it does in a session is in ``test_attack``."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from agentcore_rl_toolkit.runtime.isolation.inside import linux, seccomp

HEADERS = {
    # The kernel's generic table is the one of aarch64.
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}
PRLIMIT = {"x86_64": 302, "aarch64": 261}
OPENAT = {"x86_64": 257, "aarch64": 56}
ALLOWED, KILLED = 0x7FFF0000, 0x80000000
machines = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def refused(code: int) -> int:
    return 0x00050000 | code


def judge(machine: str, number: int, argument: int = 0, audit: int | None = None) -> int:
    """What the filter says to a call."""
    arch = AUDIT[machine] if audit is None else audit
    data = struct.pack("=iIQQ", number, arch, 0, argument)
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    at = accumulator = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value}
            at += yes if test.get(operation, bool(accumulator & value)) else no


@machines
def test_the_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].is_file():
        pytest.skip(f"no {HEADERS[machine]} here")
    text = HEADERS[machine].read_text()
    kernel = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    column = {"x86_64": 0, "aarch64": 1}[machine]
    ours = {name: numbers[column] for name, numbers in seccomp.DENIED.items()}
    newer = {name for name, number in ours.items() if number and number > max(kernel.values())}
    assert {name: kernel.get(name) for name in ours if name not in newer} == {
        name: number for name, number in ours.items() if name not in newer
    }
    assert (kernel["clone"], kernel["socket"]) == (CLONE[machine], SOCKET[machine])
    assert (kernel["clone3"], kernel["prlimit64"]) == (435, PRLIMIT[machine])
    assert linux._SYSCALLS[machine] == {name: kernel[name] for name in linux._SYSCALLS[machine]}


@machines
def test_every_call_of_the_list_is_refused_and_others_are_not(machine: str) -> None:
    column = {"x86_64": 0, "aarch64": 1}[machine]
    denied = {numbers[column] for numbers in seccomp.DENIED.values()} - {None}
    for number in range(470):
        if number in denied:
            assert judge(machine, number) == refused(errno.EPERM), number
        elif number == 435:
            assert judge(machine, number) == refused(errno.ENOSYS)
        else:
            assert judge(machine, number) == ALLOWED, number


@machines
def test_new_namespaces_are_refused_and_threads_are_not(machine: str) -> None:
    thread = 0x3D0F00
    assert judge(machine, CLONE[machine], thread) == ALLOWED
    for flag in (linux.CLONE_NEWUSER, linux.CLONE_NEWNS, linux.CLONE_NEWNET, linux.CLONE_NEWPID):
        assert judge(machine, CLONE[machine], flag | 17) == refused(errno.EPERM)


@machines
def test_odd_sockets_are_refused(machine: str) -> None:
    answers = [judge(machine, SOCKET[machine], family) for family in (1, 2, 10, 38, 40)]
    odd = refused(errno.EAFNOSUPPORT)
    assert answers == [ALLOWED, ALLOWED, ALLOWED, odd, odd]


@machines
def test_limits_of_other_processes_are_refused_and_ones_own_are_not(machine: str) -> None:
    minus_one = 0xFFFF_FFFF
    answers = [judge(machine, PRLIMIT[machine], process) for process in (0, 1, 4711, minus_one)]
    assert answers == [ALLOWED, *[refused(errno.EPERM)] * 3]


@machines
def test_calls_of_another_architecture_are_the_end(machine: str) -> None:
    i386, arm = 0x40000003, 0x40000028
    for audit in (i386, arm, *(AUDIT[other] for other in AUDIT if other != machine)):
        assert judge(machine, OPENAT[machine], audit=audit) == KILLED


def test_the_second_numbers_of_x86_are_refused() -> None:
    assert judge("x86_64", 0x40000000 + 257) == refused(errno.ENOSYS)


def test_an_architecture_without_a_table_is_told() -> None:
    assert seccomp.supported("aarch64")
    assert not seccomp.supported("riscv64")
