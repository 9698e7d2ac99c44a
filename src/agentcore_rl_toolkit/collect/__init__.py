"""The collector: tasks in, rows with rewards out.

One piece for the embedded trainer and every backend; it knows no trainer.
"""

from .attempt import GatewayLike
from .collector import Collector
from .record import Rollout, Task, Timings
from .report import CollectReport
from .setting import CollectSetting

__all__ = [
    "CollectReport",
    "CollectSetting",
    "Collector",
    "GatewayLike",
    "Rollout",
    "Task",
    "Timings",
]
