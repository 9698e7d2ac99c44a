"""The APIs that agents speak to the gateway."""

from .base import Ask, Dialect
from .chat import CHAT
from .completions import COMPLETIONS

__all__ = ["CHAT", "COMPLETIONS", "Ask", "Dialect"]
