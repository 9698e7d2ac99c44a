"""Training with rllm: its trainer, its AgentCore runtime, and our gateway between the two.

    launch      the settings that rllm needs, made from ours
    __main__    starts rllm's trainer with them                 run in rllm's environment
    capture     our gateway in the place of rllm's              imported beside rllm
    flow        what becomes of rollouts that failed            imported beside rllm

rllm itself imports ``RolloutClient`` and nothing else of this toolkit. Only ``__main__``,
``capture`` and ``flow`` import rllm.
"""
