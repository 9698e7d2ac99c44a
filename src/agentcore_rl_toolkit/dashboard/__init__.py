"""The dashboard: a web page over run folders. It reads; nothing here changes a run.

``server`` answers, ``guard`` decides who may ask; ``run``, ``rollout`` and ``token`` make what is
answered; ``live`` tells the page what has changed. The page itself is in ``static``.
"""

from __future__ import annotations

from .server import DashboardServer

__all__ = ["DashboardServer"]
