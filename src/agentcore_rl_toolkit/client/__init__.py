"""Trainer side: submit rollouts, get their results."""

from .batch import BatchItem
from .client import RolloutClient
from .future import RolloutFuture
from .report import Progress, Report

__all__ = ["BatchItem", "Progress", "Report", "RolloutClient", "RolloutFuture"]
