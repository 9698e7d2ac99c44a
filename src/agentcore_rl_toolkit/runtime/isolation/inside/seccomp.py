"""The system calls that no session needs, refused by a filter that cannot be taken off.

A denylist, not a wall of its own: it takes away what is known to widen the kernel's surface, and
answers with errors that programs expect. Device nodes are not in it: the kernel refuses them to
every user namespace, while ``mkfifo`` is the same call.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

from . import linux

DENIED = {
    # name: (x86_64, aarch64); None where the architecture has no such call
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "personality": (135, 92),
    "vhangup": (153, 58),
    "pivot_root": (155, 41),
    "adjtimex": (159, 171),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "lookup_dcookie": (212, 18),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "migrate_pages": (256, 238),
    "unshare": (272, 97),
    "move_pages": (279, 239),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "clock_adjtime": (305, 266),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "open_tree_attr": (467, 467),
}
FAMILIES = (38, 40)
"""AF_ALG, a door into kernel crypto, and AF_VSOCK, which no network namespace bounds."""

_ARCHITECTURES = {
    # machine: (column, audit architecture, clone, clone3, socket, prlimit64)
    "x86_64": (0, 0xC000003E, 56, 435, 41, 302),
    "aarch64": (1, 0xC00000B7, 220, 435, 198, 261),
}
_NAMESPACES = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWCGROUP
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
)
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16


def supported(machine: str | None = None) -> bool:
    return (machine or os.uname().machine) in _ARCHITECTURES


@functools.cache
def program(machine: str) -> bytes:
    """Classic BPF over ``struct seccomp_data``: 8 bytes an instruction. A zygote asks for it once,
    so that no session has to make it."""
    column, audit, clone, clone3, socket, prlimit64 = _ARCHITECTURES[machine]
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":  # the x32 numbers are a second way to every call
        code += [_step(_AT_LEAST, 0x40000000, 0, 1), _refuse(errno.ENOSYS)]
    # Its flags lie in memory that a filter cannot read; without it libc falls back to clone.
    code += [_step(_EQUAL, clone3, 0, 1), _refuse(errno.ENOSYS)]
    code += [
        _step(_EQUAL, clone, 0, 4),
        _step(_LOAD, _ARGUMENT),
        _step(_ANY_BIT, _NAMESPACES, 0, 1),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    code += [_step(_EQUAL, socket, 0, 2 + 2 * len(FAMILIES)), _step(_LOAD, _ARGUMENT)]
    for family in FAMILIES:
        code += [_step(_EQUAL, family, 0, 1), _refuse(errno.EAFNOSUPPORT)]
    code.append(_step(_RETURN, _ALLOW))
    # Processes of one user may set each other's limits: only 0, the caller itself, is let through.
    code += [
        _step(_EQUAL, prlimit64, 0, 4),
        _step(_LOAD, _ARGUMENT),
        _step(_EQUAL, 0, 1, 0),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            code += [_step(_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    code.append(_step(_RETURN, _ALLOW))
    return b"".join(code)


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)


def _refuse(code: int) -> bytes:
    return _step(_RETURN, _ERROR | code)


def load() -> None:
    """For this process and all that it starts. Needs no_new_privs."""
    code = program(os.uname().machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    set_mode_filter = 1
    linux.syscall("seccomp", set_mode_filter, 0, ctypes.create_string_buffer(header))
