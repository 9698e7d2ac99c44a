"""On the path of an interpreter, it makes Linux look like macOS to all Python code in it.

What macOS does not have is not there: functions and constants of the standard library, system calls
through ctypes, sockets that keep packets apart with connections, /proc and /sys.
"""

import builtins
import ctypes
import errno
import io
import os
import resource
import select
import signal
import socket
import sys

sys.platform = "darwin"
ABSENT = {
    os: (
        *("pidfd_open", "memfd_create", "MFD_CLOEXEC", "unshare", "setns", "P_PIDFD", "waitid"),
        *("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise", "pipe2"),
        *("fdatasync", "splice", "copy_file_range", "eventfd", "getrandom", "setresuid"),
        *("O_TMPFILE", "O_PATH", "O_DIRECT", "getresuid", "setresgid", "getxattr", "setxattr"),
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    select: ("epoll", "EPOLLIN", "EPOLL_CLOEXEC"),
    resource: ("prlimit",),
    socket: (
        *("SO_PEERCRED", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_VSOCK"),
        *("AF_NETLINK", "AF_ALG", "SO_DOMAIN", "SO_PROTOCOL", "TCP_QUICKACK", "MSG_NOSIGNAL"),
    ),
}
CALLS = {"prctl", "syscall", "unshare", "setns", "mount", "umount2", "madvise", "memfd_create"}

for module, names in ABSENT.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

_call = ctypes.CDLL.__getattr__


def _found(self, name):
    if name in CALLS:
        raise AttributeError(f"symbol not found: {name}")
    return _call(self, name)


ctypes.CDLL.__getattr__ = _found


def _without_proc(module, name):
    real = getattr(module, name)

    def call(path, *args, **kwargs):
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if text.startswith(("/proc", "/sys/")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
        return real(path, *args, **kwargs)

    setattr(module, name, call)


_without_proc(builtins, "open")
io.open = builtins.open
for name in ("open", "listdir", "scandir", "readlink", "stat", "lstat", "access"):
    _without_proc(os, name)

_pair = socket.socketpair


def _socketpair(family=None, kind=socket.SOCK_STREAM, proto=0):
    if kind == socket.SOCK_SEQPACKET:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
    return _pair(family or socket.AF_UNIX, kind, proto)


socket.socketpair = _socketpair
