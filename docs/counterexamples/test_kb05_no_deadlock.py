"""kb05 1+1, fault-free: no_deadlock, 9 micro-steps

Written by `elasticfsm check --patch kb05 --sizes 1+1 --counterexample DIR`.
It passes as long as the real machines, interpreters and monitors do what the checker has found. With a protocol that is
right (ELASTICFSM_SPEC=PROTOCOL) it fails, and says where the trace cannot be followed.
"""

import os

from elasticfsm.testing.stage import reproduce

SPEC = os.environ.get("ELASTICFSM_SPEC", "kb05")  # a protocol or a patch, by name or path
SIZES = {"remaining": 1, "removing": 1}

TRACE = """
remaining0 merged.remaining takes received pause
removing0 merged.removing takes received pause
coordinator merged.coordinator takes all paused
remaining0 merged.remaining takes received commit
remaining0 merged.remaining enters groups.create: standby
remaining0 merged.remaining leaves groups.create: standby
remaining0 merged.remaining enters groups.carve: active
removing0 merged.removing takes received commit
removing0 merged.removing enters groups.part: active
"""

STANDS = {
    "coordinator": {"merged.coordinator": "committing"},
    "remaining0": {"merged.remaining": "committing"},
    "removing0": {"merged.removing": "committing"},
}


def test_kb05_no_deadlock() -> None:
    reproduce(SPEC, SIZES, "no_deadlock", TRACE, STANDS)
