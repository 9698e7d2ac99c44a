"""Level ``process``: sessions are processes of the same user, forked from a warmed interpreter.

Each has an own home, temporary folder and working copy of the agent's folder, an own session and
limits, and ends with everything it started. Where the kernel has Landlock it can write only there,
read only what Python and the system are made of, and signal only itself; the system call filter of
level ``namespace`` holds here, too. It is no wall: sessions share the network, the user and /proc,
where they can read the runtime's environment. It is the level where namespaces are not permitted.
On systems other than Linux it is what ``plain`` can give.
"""

from __future__ import annotations

import asyncio

from . import cgroup, plain, view
from .base import Agent, Probe, Template
from .inside import landlock, linux
from .template import ProcessTemplate


class ProcessDriver:
    level = "process"

    def probe(self) -> Probe:
        if not linux.HERE:
            return Probe(True, plain.MADE_OF)
        wall = "Landlock keeps each to its own files" if landlock.version() > 0 else "no wall"
        return Probe(True, f"processes of the same user; {wall}; {cgroup.find().describe()}")

    async def prepare(self, agent: Agent) -> Template:
        if not linux.HERE:
            return await plain.prepare(agent)
        template = ProcessTemplate(agent)
        try:
            template.readable = await asyncio.to_thread(view.readable, agent)
            await template.start()
        except BaseException:
            await template.close()
            raise
        return template
