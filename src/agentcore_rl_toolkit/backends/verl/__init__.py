"""verl 0.9: our rollouts inside its stock trainer, plugged in by configuration.

    launch      the settings that ``verl.trainer.main_ppo`` needs, made from ours
    dataset     rows of the data file are payloads                      imported by verl
    loop        one run of verl's agent loop is one rollout             imported by verl
    manager     agent-loop workers that are replaced when they die      imported by verl
    host        gateway and collector, once per agent-loop worker
    engine      the gateway's engine: verl's own token-in/token-out server client
    fields      samples in verl's words

Only ``loop`` and ``manager`` import verl; everything else can be read and tested without it.
"""
