"""A seeded chaos run on the whole stack, and a soak: what breaks is printed with its seed.

    python -m faults --minutes 10 --seed 7      every fault of ``event.py``, in an order of the seed
    python -m faults.soak --minutes 30          many slow sessions and no fault at all

Everything is a real part in a process of its own: ``art runtime serve``, ``art gateway serve
--workers 2``, a token engine (``engine.py``), and a trainer (``driver.py``) that collects rollouts
of a multi-turn agent (``agent/``) and writes down each row it is given. ``stack.py`` starts and
kills them, ``proxy.py`` stands between any two, ``event.py`` says what happens when, and
``invariant.py`` and ``leak.py`` hold what was seen against what must be.

The seed decides which faults come, in which order, where and for how long. It does not decide how
the machine interleaves the processes: a replay meets the same faults, not the same nanosecond.
"""
