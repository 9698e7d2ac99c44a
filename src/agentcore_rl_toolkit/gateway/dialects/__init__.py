"""The APIs that agents speak to the gateway."""

from .base import Ask, Dialect, Outlet
from .chat import CHAT
from .completions import COMPLETIONS
from .messages import MESSAGES
from .responses import RESPONSES

BY_PATH: dict[str, Dialect] = {
    "chat/completions": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
    "responses": RESPONSES,
}
BY_NAME: dict[str, Dialect] = {dialect.name: dialect for dialect in BY_PATH.values()}
COUNT_TOKENS = "messages/count_tokens"

__all__ = [
    "BY_NAME",
    "BY_PATH",
    "CHAT",
    "COMPLETIONS",
    "COUNT_TOKENS",
    "MESSAGES",
    "RESPONSES",
    "Ask",
    "Dialect",
    "Outlet",
]
