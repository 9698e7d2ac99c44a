"""System calls that the standard library does not have, through ctypes.

Every function raises OSError with the name of the call. Nothing here decides anything. What is here
may be called only where ``HERE`` is true: elsewhere sessions are plain processes (``plain``).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

HERE = sys.platform == "linux"
"""Whether the system is one that this is for. The only place that asks."""

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_MACHINE = os.uname().machine
_SYSCALLS = {
    "x86_64": {"pivot_root": 155, "capset": 126, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "capset": 91, "seccomp": 277},
}
_libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(name: str, *args: object) -> int:
    number = _SYSCALLS.get(_MACHINE, {}).get(name)
    if number is None:
        raise OSError(f"{name}: no system call number known for {_MACHINE}")
    return check(_libc.syscall(ctypes.c_long(number), *args), name)


def raw_syscall(number: int, *args: object) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *args))


def last_error() -> str:
    return os.strerror(ctypes.get_errno())


def prctl(option: int, value: int = 0) -> None:
    rest = [ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3]
    check(_libc.prctl(ctypes.c_int(option), *rest), f"prctl {option}")


def advise(start: ctypes.c_void_p, length: int, advice: int) -> bool:
    """Whether the kernel took the advice: that is all that can come of it."""
    return int(_libc.madvise(start, ctypes.c_size_t(length), ctypes.c_int(advice))) == 0


def unshare(flags: int) -> None:
    check(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def setns(descriptor: int, kind: int) -> None:
    check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def mount(
    source: str | None,
    target: str,
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    result = _libc.mount(
        os.fsencode(source) if source else None,
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    check(result, f"mount {kind or source or 'flags'} on {target}")


def detach(target: str) -> None:
    check(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_here(root: str) -> None:
    """Makes ``root`` the root of this mount namespace and forgets the old one."""
    os.chdir(root)
    syscall("pivot_root", b".", b".")
    detach(".")
    os.chdir("/")


def drop_bounding_set() -> None:
    """Needs CAP_SETPCAP: before the user id changes."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            return


def drop_capabilities() -> None:
    version_3 = 0x20080522
    syscall("capset", struct.pack("Ii", version_3, 0), bytes(24))


def loopback_up() -> None:
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, get_flags, request))[1]
        fcntl.ioctl(sock, set_flags, struct.pack("16sh14x", b"lo", flags | up))
