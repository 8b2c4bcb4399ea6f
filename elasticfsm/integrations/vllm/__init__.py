"""An observer of vLLM's elastic expert parallelism, found by vLLM through its entry point `vllm.general_plugins`.

vLLM calls `register` in every process it starts. Nothing is imported and nothing changed until vLLM imports its elastic
modules, and then only if it is a release that the table fits. Switched by environment variables:

ELASTICFSM_VLLM      off (default), observe (journal what happens), guard (refuse what the spec forbids)
ELASTICFSM_JOURNAL   directory of the journals, one file per engine; without it nothing is written
"""

from __future__ import annotations

import os

SWITCH = "ELASTICFSM_VLLM"
JOURNAL = "ELASTICFSM_JOURNAL"
MODES = ("off", "observe", "guard")

_registered = False


def mode() -> str:
    """What the environment asks for; an unknown word is `off`."""
    word = os.environ.get(SWITCH, "off").strip().lower()
    return word if word in MODES else "off"


def register() -> None:
    """Waits for vLLM's elastic modules; called by vLLM, as often as it likes. Never raises, never blocks."""
    global _registered  # noqa: PLW0603 - once a process
    if _registered or mode() == "off":
        if not _registered and os.environ.get(SWITCH, "off").strip().lower() not in MODES:
            import logging

            logging.getLogger("vllm.elasticfsm").warning(
                "%s=%s is none of %s: the observer stays off", SWITCH, os.environ[SWITCH], ", ".join(MODES)
            )
        return
    _registered = True
    from elasticfsm.integrations.vllm import arrival

    arrival.after_import("vllm.distributed.elastic_ep.elastic_state", "elasticfsm.integrations.vllm.core")
    arrival.after_import("vllm.distributed.elastic_ep.elastic_execute", "elasticfsm.integrations.vllm.worker")
