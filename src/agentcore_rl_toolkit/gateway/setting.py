"""Every setting of a gateway, with its unit and what it protects."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from ..run.retention import MAX_AGE_S, MAX_BYTES
from ..trajectory.drift import ALARM_SHARE
from .engines import make_engine
from .normal import DEFAULT_RULES, RULES
from .route import Pool
from .session import Caps
from .text.parse import SYSTEMATIC, ParseHealth
from .text.render import Renderer, load_renderer


@dataclass(frozen=True)
class ModelSpec:
    """A model name, its engines and whether its turns are trained."""

    name: str
    engines: tuple[str, ...]
    """Each ``kind:url``, such as ``vllm:http://127.0.0.1:8000``."""
    train: bool = True
    tokenizer: str | Renderer | None = None
    """Folder or name of the tokenizer, for engines that take token ids. With it a vLLM engine is
    used token-in/token-out, if it offers that."""
    renderer: str | None = None
    """Model family, such as ``qwen3``, or ``template``; None: chosen by the tokenizer's folder."""
    max_parse_failures: int = SYSTEMATIC
    """Answers whose tool calls cannot be read, with none that can, before calls fail. 0: never."""
    experts: bool = False
    """Ask engines that take ids for the experts of every token (mixture of experts, vLLM with
    ``--enable-return-routed-experts`` or SGLang)."""
    api_key: str | None = field(default=None, repr=False)
    """Sent to the engines as bearer token."""

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """``policy=vllm:http://a,vllm:http://b``; a name that ends in ``!`` is not trained."""
        name, eq, engines = text.partition("=")
        if not eq or not name or not engines:
            raise ConfigError(
                f"{text!r} is not a model: write NAME=KIND:URL, such as "
                "policy=vllm:http://127.0.0.1:8000, with NAME! for a model that is not trained"
            )
        specs = tuple(part.strip() for part in engines.split(",") if part.strip())
        train = not name.endswith("!") and not any(s.startswith("chat:") for s in specs)
        return cls(name.rstrip("!"), specs, train)

    def pool(self) -> Pool:
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else None
        engines = [make_engine(spec, headers=headers) for spec in self.engines]
        renderer = self.tokenizer
        if isinstance(renderer, str):
            renderer = load_renderer(renderer, self.renderer)
        if renderer is not None:
            renderer.health = ParseHealth(renderer.name, self.max_parse_failures)
        return Pool(self.name, engines, train=self.train, renderer=renderer, experts=self.experts)


@dataclass(frozen=True)
class GatewaySettings:
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    run_dir: Path | None = None
    """Run folder; None: ``gateway`` in the user's state folder."""
    public_url: str | None = None
    """How agents reach the gateway, when not by its host and port."""
    admin_token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    open: bool = False
    """Callers choose session ids, path ids are keys, no admin token: for trusted loopback only."""
    keep_alive_s: float = 15.0
    """Silence after which meaningless bytes are sent; tunnels cut at 100 to 120 s."""
    retry_grace_s: float = 3.0
    """How long a call goes on without its client, for a retry to join it."""
    retry_window_s: float = 60.0
    """How long a finished answer is kept for a retry."""
    retry_bytes: int = 2 << 20
    """Memory that kept answers may take, all sessions together."""
    drain_s: float = 30.0
    """How long ``finish`` waits for calls in flight before it cancels them."""
    linger_s: float = 60.0
    """How long a finished session can still be read before it leaves memory."""
    session_ttl_s: float = 24 * 3600.0
    """Silence after which a session that nobody finished is closed."""
    park_s: float = 5.0
    """Idle time after which a session is folded into compressed bytes, and once more of it for
    every ten turns, since unfolding costs by the turn."""
    health_s: float = 5.0
    max_body_bytes: int = 64 << 20
    max_header_bytes: int = 16 << 10
    caps: Caps = field(default_factory=Caps)
    """Of sessions that bring none of their own."""
    journal_bytes: int = MAX_BYTES
    """Size of all journals above which the oldest segments of closed sessions go."""
    journal_age_s: float = MAX_AGE_S
    fsync: bool = True
    """False survives a killed process, not a power cut."""
    normalise: frozenset[str] = DEFAULT_RULES
    """Names of rules in ``gateway.normal.RULES`` that are applied to requests."""
    drift_share: float = ALARM_SHARE
    """Share of turns that came back with other ids than were sampled, above which a session is
    reported: in its status, in the log and in the metrics."""
    probe: bool = False
    """Sample one token from every engine of a trained model at start, to see that ids and
    log-probabilities come back."""

    def __post_init__(self) -> None:
        for name in self.normalise - RULES.keys():
            raise ConfigError(f"no rule {name!r} to normalise by: write {', '.join(RULES)}")
