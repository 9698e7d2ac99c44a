"""What runs in the agent's own interpreter: keeper, zygote, and the first process of a session.

Standard library only, and importable under any package name: the agent's environment may hold
another version of the toolkit, or none. ``__main__`` loads this folder as a private package.

    runtime ── keeper ── zygote ── init (one a session) ── agent
                 │         │         └ reaps, answers the runtime, ends with everything below it
                 │         └ has imported the agent's code once, forks
                 └ sees the runtime die, and takes everything below with it
"""
