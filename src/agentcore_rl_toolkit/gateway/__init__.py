"""The model gateway: agents speak plain OpenAI, training gets exact tokens.

``Gateway`` lives on an asyncio loop; ``GatewayThread`` runs one for synchronous programs.
"""

from .server import Gateway, serve
from .setting import GatewaySettings, ModelSpec
from .thread import GatewayThread

__all__ = ["Gateway", "GatewaySettings", "GatewayThread", "ModelSpec", "serve"]
