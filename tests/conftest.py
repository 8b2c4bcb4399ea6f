"""What no test may leave behind in this process."""

import signal
import threading

import pytest


@pytest.fixture(autouse=True)
def no_signal_stays_blocked():
    """A signal mask is inherited by every process started later: those would not hear Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    assert threading.current_thread() is threading.main_thread()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
