"""The whole of ``sandbox``, tried by a process that then ends. Exit status 0 means it works."""

from __future__ import annotations

import json
import os
import sys

from . import linux, sandbox


def main(descriptor: int) -> None:
    with open(descriptor) as file:
        config = json.load(file)
    try:
        sandbox.enter_users(config["users"], config["view"])
        _in_child(lambda: _zygote(config))
    except OSError as error:
        print(error)  # noqa: T201 - the answer
        sys.exit(1)


def _zygote(config: dict[str, object]) -> None:
    sandbox.enter_view(config)
    linux.unshare(linux.CLONE_NEWPID)
    _in_child(lambda: sandbox.enter_session(config, config))


def _in_child(step: object) -> None:
    assert callable(step)
    child = os.fork()
    if child == 0:
        try:
            step()
        except OSError as error:
            os.write(1, f"{error}\n".encode())
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        os._exit(1)
