"""The namespaces of a zygote and of each session.

Four steps, each by a process that cannot undo it later:

    keeper    enter_users    user, process and mount namespace; no right on the machine from here
    zygote    enter_view     a new root with read-only copies of what Python needs; no network;
                             before any line of the agent has run
    session   enter_session  private writable places, own network, own user; nothing left to drop
    agent     join_session   the same for a process that comes to these from the zygote

Sessions are made inside the zygote's view and only cover its writable places, so there is no
second pivot. What is visible is decided by the runtime (``view``); here it is only done.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
from typing import Any, TypedDict

from . import linux, seccomp

APP = "/app"
"""Where every agent finds its folder."""
HOME = "/home/agent"
USER = 1000
"""The agent's user id as it sees itself."""
_BASE = "/tmp"
"""Covered by the new root while that is built; every machine has it."""
_RUN = "/run"
COVERED = {"/tmp": "tmp", "/var/tmp": "vartmp", "/dev/shm": "shm", HOME: "home"}
"""Writable in a session: place to folder of its own file system."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_MASKED = ("/proc/keys", "/proc/key-users")
"""They name the keys of the user that runs the runtime, in whatever namespace they are read."""
_READ_ONLY = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
_PLAIN = linux.MS_NOSUID | linux.MS_NODEV
_KEPT_FLAGS = linux.MS_NOEXEC | 1024 | 2048
"""noexec, noatime, nodiratime: a user namespace may not take them off a mount."""


class Users(TypedDict):
    """The user ids of the zygote's namespace: ``count`` from 0 are ``first`` … outside."""

    first_uid: int
    first_gid: int
    count: int


class Place(TypedDict):
    source: str
    target: str


def enter_users(users: Users, view: list[Place]) -> None:
    """Of the keeper. Opens the view's sources on the way: the runtime's rights still count."""
    inside = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS
    if users["count"] == 1:
        linux.unshare(inside)
        _write("/proc/self/setgroups", "deny")
        _map("self", 0, users)
    else:
        _unshare_mapped(inside, users)
    _open_sources(view)
    if users["count"] > 1:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        linux.prctl(linux.PR_SET_DUMPABLE, 1)


def _unshare_mapped(flags: int, users: Users) -> None:
    """A range of ids can only be mapped by a process that stays outside."""
    me = str(os.getpid())
    left, done = os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.read(left[0], 1)
            _map(me, 0, users)
        except OSError:
            os._exit(1)
        os.write(done[1], b"x")
        os._exit(0)
    linux.unshare(flags)
    os.write(left[1], b"x")
    os.close(done[1])
    answer = os.read(done[0], 1)
    os.waitpid(helper, 0)
    for descriptor in (*left, done[0]):
        os.close(descriptor)
    if not answer:
        raise OSError("the user ids of the zygote could not be mapped")


def _map(process: str, inside: int, users: Users) -> None:
    _write(f"/proc/{process}/uid_map", f"{inside} {users['first_uid']} {users['count']}")
    _write(f"/proc/{process}/gid_map", f"{inside} {users['first_gid']} {users['count']}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


_sources: dict[str, int] = {}
"""Target to an O_PATH descriptor of its source, from the keeper to the zygote."""


def _open_sources(view: list[Place]) -> None:
    for place in view:
        _sources[place["target"]] = os.open(place["source"], os.O_PATH)
    for name in _DEVICES:
        _sources[f"/dev/{name}"] = os.open(f"/dev/{name}", os.O_PATH)


def enter_view(config: dict[str, Any]) -> None:
    """Of the zygote."""
    own = linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    if config["network"] != "open":
        own |= linux.CLONE_NEWNET
    linux.unshare(own)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("view", _BASE, "tmpfs", _PLAIN, "size=4m,mode=755")
    for name in ("proc", "sys", "run", "etc", "root", "dev/pts", *COVERED):
        os.makedirs(_BASE + os.path.join("/", name), exist_ok=True)
    for path, target in config["links"].items():
        os.symlink(target, _BASE + path)
    for path, text in config["files"].items():
        _write(_BASE + path, text)
    for target in sorted(_sources, key=len):
        _bind_read_only(_sources.pop(target), _BASE + target)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{_BASE}/dev/{name}")
    os.symlink("/proc/self/fd", f"{_BASE}/dev/fd")
    os.symlink("pts/ptmx", f"{_BASE}/dev/ptmx")
    linux.mount("proc", f"{_BASE}/proc", "proc", _PLAIN | linux.MS_NOEXEC)
    for place in ("/run", *COVERED):  # for the import; every session covers them again
        if not any(kept.startswith(place + "/") for kept in config["kept"]):
            linux.mount("view", _BASE + place, "tmpfs", _PLAIN, "size=64m,mode=1777")
    _seal(_BASE)
    linux.pivot_here(_BASE)


def _bind_read_only(descriptor: int, target: str) -> None:
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    # Recursive: a namespace of an ordinary user may not lift single mounts out of a tree.
    linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    os.close(descriptor)
    for mounted in _mounts_below(target):
        _seal(mounted)


def _mounts_below(target: str) -> list[str]:
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4] for line in file]
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        points = [point.replace(escaped, plain) for point in points]
    return [point for point in points if point == target or point.startswith(target + "/")]


def _seal(target: str) -> None:
    kept = os.statvfs(target).f_flag & _KEPT_FLAGS
    is_device = target.startswith(_BASE + "/dev/")
    flags = linux.MS_RDONLY | linux.MS_NOSUID if is_device else _READ_ONLY
    linux.mount(None, target, None, linux.MS_BIND | linux.MS_REMOUNT | flags | kept)


def enter_session(config: dict[str, Any], request: dict[str, Any]) -> None:
    """Of the first process of a session; it is already the first of its process namespace."""
    own = linux.CLONE_NEWNS | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
    if config["network"] != "open":
        own |= linux.CLONE_NEWNET
    linux.unshare(own)
    if config["network"] != "open":
        linux.loopback_up()
        _write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
    user = config["user"]
    _writable_places(config["kept"], request["limits"]["disk_mb"], user)
    os.chdir(APP)
    socket.sethostname("session")
    _limit(request["limits"])
    _become(user, request["limits"]["processes"])


def _spaces(config: dict[str, Any]) -> dict[str, int]:
    """What a process joins to be in a session, in this order."""
    kinds = {"mnt": linux.CLONE_NEWNS, "ipc": linux.CLONE_NEWIPC, "uts": linux.CLONE_NEWUTS}
    kinds["cgroup"] = linux.CLONE_NEWCGROUP
    if config["network"] != "open":
        kinds["net"] = linux.CLONE_NEWNET
    return {**kinds, "user": linux.CLONE_NEWUSER}


def open_spaces(config: dict[str, Any]) -> list[int]:
    """Of the first process of a session: its process namespace, and those for ``join_session``."""
    names = ("pid", *_spaces(config))
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]


def join_session(config: dict[str, Any], request: dict[str, Any], spaces: list[int]) -> None:
    """Of a child of the zygote that has the session's process namespace already."""
    kinds = list(_spaces(config).values())
    *others, users = spaces
    for descriptor, kind in zip(others, kinds[:-1], strict=True):
        linux.setns(descriptor, kind)
        os.close(descriptor)
    os.chdir(APP)
    _limit(request["limits"])
    _become(config["user"], request["limits"]["processes"], users)


def _writable_places(kept: list[str], disk_mb: int, user: int) -> None:
    held = {target: os.open(target, os.O_PATH) for target in kept}
    options = f"size={disk_mb}m,nr_inodes={disk_mb * 256},mode=755"
    linux.mount("session", _RUN, "tmpfs", _PLAIN, options)
    for name in (*COVERED.values(), "upper", "work"):
        os.mkdir(f"{_RUN}/{name}", 0o700)
        os.chown(f"{_RUN}/{name}", user, user)
    for target, name in COVERED.items():
        linux.mount(f"{_RUN}/{name}", target, None, linux.MS_BIND)
    for target, descriptor in held.items():
        os.makedirs(target, exist_ok=True)
        _bind_read_only(descriptor, target)
    _writable_app(user)
    linux.mount("proc", "/proc", "proc", _PLAIN | linux.MS_NOEXEC)
    for path in filter(os.path.exists, _MASKED):
        linux.mount("/dev/null", path, None, linux.MS_BIND)
    terminals = "newinstance,ptmxmode=0666,mode=0620"
    linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, terminals)
    os.chmod(_RUN, 0o711)


def _writable_app(user: int) -> None:
    options = f"lowerdir={APP},upperdir={_RUN}/upper,workdir={_RUN}/work,userxattr"
    try:
        linux.mount("overlay", APP, "overlay", _PLAIN, options)
    except OSError:
        # Before Linux 6.6 a tmpfs cannot be the upper layer: a copy costs memory, not much else.
        shutil.copytree(APP, f"{_RUN}/upper", symlinks=True, dirs_exist_ok=True)
        for place, folders, files in os.walk(f"{_RUN}/upper"):
            for name in (*folders, *files):
                os.lchown(os.path.join(place, name), user, user)
        linux.mount(f"{_RUN}/upper", APP, None, linux.MS_BIND)


def _limit(limits: dict[str, int]) -> None:
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["disk_mb"] * 1024 * 1024),
    ):
        _bound(kind, value)


def _bound(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _become(user: int, processes: int, joined: int | None = None) -> None:
    """From root of the zygote's namespace to a user without rights in one of its own, or in the
    one that is ``joined``."""
    linux.drop_bounding_set()
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else the maps below belong to root
    if joined is None:
        linux.unshare(linux.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{USER} {user} 1")
        _write("/proc/self/gid_map", f"{USER} {user} 1")
    else:
        linux.setns(joined, linux.CLONE_NEWUSER)
        os.close(joined)
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    # Counted per user namespace. Set earlier, it would bound all sessions of the zygote together.
    _bound(resource.RLIMIT_NPROC, processes)
    linux.drop_bounding_set()
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if joined is None:  # a change of user clears it; who joins dies with the process namespace
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    seccomp.load()
