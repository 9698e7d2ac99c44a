"""Fuzzing of what reads bytes that others wrote. One small harness a reader: ``python -m fuzz``.

A harness is a module with ``SEEDS``, some good inputs, and ``check(data)``, which raises when the
reader does what it must not: an error that is not its own, an answer that depends on how the bytes
arrived, a sound part that was lost. What is found becomes a test beside the reader's others.
"""
