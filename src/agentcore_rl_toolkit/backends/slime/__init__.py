"""Training with slime: Megatron trains, SGLang samples, sessions run the agent.

``SlimeRunner`` starts slime with the two functions that it calls by path:
``agentcore_rl_toolkit.backends.slime.generate.generate`` makes the samples,
``agentcore_rl_toolkit.backends.slime.reward.post_process`` their advantages.
"""

from .runner import SlimeRunner

__all__ = ["SlimeRunner"]
