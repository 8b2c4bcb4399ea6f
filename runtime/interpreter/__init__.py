"""Runs the machines of the spec: those of an engine (`Interpreter`) and that of the coordinator (`Conductor`)."""

from elasticfsm.board import Board
from elasticfsm.mailbox import Letter
from elasticfsm.seat import Cancel

from .adapters import Cancelled, check_adapters
from .coordinator import Conductor
from .engine import Interpreter
from .operation import Operation, OperationEnded

__all__ = [
    "Board",
    "Cancel",
    "Cancelled",
    "Conductor",
    "Interpreter",
    "Letter",
    "Operation",
    "OperationEnded",
    "check_adapters",
]
