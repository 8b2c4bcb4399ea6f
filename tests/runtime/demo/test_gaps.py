"""Gaps: an interval between two tokens counts in every phase that it touches."""

import pytest

from elasticfsm.runtime.demo.gaps import Window, measure
from elasticfsm.runtime.demo.workload import prompts
from elasticfsm.runtime.router import Stream


def stream(*times):
    return Stream("r", (1,), 9, times=list(times))


def test_the_longest_gap_is_told_in_steps_of_the_steady_window_of_that_size():
    streams = [stream(0.0, 0.1, 0.2, 0.3, 0.8, 0.9), stream(1.0, 1.1)]
    windows = [Window(name="steady 2", begin=0, end=0.35, size=2), Window(name="switch", begin=0.5, end=0.95, size=2)]
    steady, switch = measure(streams, windows)
    assert (steady.tokens, switch.tokens) == (4, 2)
    assert switch.longest_ms == pytest.approx(500)
    assert switch.longest_steps == pytest.approx(5)


def test_a_phase_without_tokens_has_no_gap():
    (empty,) = measure([stream(0.0, 0.1)], [Window(name="switch", begin=5, end=6, size=2)])
    assert (empty.tokens, empty.longest_steps) == (0, 0.0)


def test_the_shipped_prompts_come_in_two_domains():
    found = prompts()
    assert {domain: len(texts) >= 25 for domain, texts in found.items()} == {"scripture": True, "code": True}
    assert all(text.isascii() and "\\n" not in text for texts in found.values() for text in texts)
    assert any("\n" in text for text in found["code"])
