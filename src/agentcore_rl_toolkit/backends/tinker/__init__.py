"""Training at Tinker's service: rollouts here, weights there.

``loop.train`` is what ``art train`` runs, with the same configuration, run folder and view as the
embedded trainer; the SDK is imported when it is called.
"""

from .datum import Columns, columns, datum
from .setting import TinkerSetting

__all__ = ["Columns", "TinkerSetting", "columns", "datum"]
