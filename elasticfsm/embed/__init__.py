"""Monitor and machine for somebody else's engine: the standard library only, and a table compiled beforehand.

`elasticfsm compile SPEC` writes the table. Nothing here imports YAML, msgspec, transitions or torch, opens a socket, or
does anything before it is called.
"""

from elasticfsm.embed.machine import Machine, Pending, Steps
from elasticfsm.embed.monitor import Mode, Monitor, Refused
from elasticfsm.embed.program import Op, Place, Program, TableError
from elasticfsm.embed.recorder import Recorder

__all__ = [
    "Machine",
    "Mode",
    "Monitor",
    "Op",
    "Pending",
    "Place",
    "Program",
    "Recorder",
    "Refused",
    "Steps",
    "TableError",
]
