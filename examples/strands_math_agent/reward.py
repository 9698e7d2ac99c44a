"""The reward of the math agent."""

from agentcore_rl_toolkit import FinalAnswer, RewardFunction


class MathReward(RewardFunction):
    """1.0 when the number after the last '####' is the expected one."""

    def __init__(self) -> None:
        self.final_answer = FinalAnswer()

    def __call__(self, *, response=None, answer=None, **kwargs) -> float:
        return self.final_answer(response=response, answer=answer)
