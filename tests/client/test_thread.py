from __future__ import annotations

import logging
import threading
import time

import pytest

from agentcore_rl_toolkit.client.thread import Pool, Timer


def test_the_pool_grows_to_what_is_asked_of_it_and_not_beyond() -> None:
    pool, release, seen = Pool("test", 4), threading.Event(), threading.Semaphore(0)

    def job() -> None:
        seen.release()
        release.wait(5)

    for _ in range(10):
        pool.submit(job)
    for _ in range(4):
        assert seen.acquire(timeout=60)
    assert pool.size == 4
    assert not seen.acquire(blocking=False)
    release.set()
    for _ in range(6):
        assert seen.acquire(timeout=60)
    pool.close()


def test_an_idle_thread_is_used_again() -> None:
    pool, done = Pool("test", 100), threading.Semaphore(0)
    for _ in range(20):
        pool.submit(lambda: done.release() and None)
        assert done.acquire(timeout=60)
        deadline = time.monotonic() + 60
        while pool._idle < pool.size and time.monotonic() < deadline:
            time.sleep(0.001)
    assert pool.size == 1
    pool.close()


def test_a_job_that_raises_is_logged_and_ends_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, done = Pool("test", 1), threading.Event()
    with caplog.at_level(logging.ERROR):
        pool.submit(lambda: 1 / 0 and None)
        pool.submit(done.set)
        assert done.wait(5)
    assert "failed unexpectedly" in caplog.text
    pool.close()


def test_the_timer_runs_in_order_of_time_and_not_what_was_cancelled() -> None:
    timer, ran, done = Timer(), [], threading.Event()
    timer.later(0.06, done.set)
    timer.later(0.04, lambda: ran.append("late"))
    timer.later(0.02, lambda: ran.append("never")).cancel()
    timer.later(0.0, lambda: ran.append("early"))
    assert done.wait(5)
    assert ran == ["early", "late"]
    timer.close()
