"""Logs for people, or one JSON object a line for machines; both with operation, engine and state if there are any."""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.text import Text

FIELDS = ("operation", "engine", "state", "phase", "error", "instance")  # `extra` of our log calls


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """As JSON."""
        line = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: str(value) for name in FIELDS if (value := getattr(record, name, ""))}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Lines(logging.Formatter):
    """One line for a person: time, what, and the fields that are there."""

    def format(self, record: logging.LogRecord) -> str:
        """As text."""
        fields = [f"{name}={value}" for name in FIELDS if (value := getattr(record, name, ""))]
        return " ".join([time.strftime("%H:%M:%S", time.localtime(record.created)), record.getMessage(), *fields])


class Above(io.TextIOBase):
    """A stream that prints on a console, above what is drawn there live."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        """Print it as it is."""
        self._console.print(Text(text), end="", soft_wrap=True)
        return len(text)


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def to(stream: TextIO | io.TextIOBase | None = None, lines: bool = False) -> logging.Handler:
    """Write what elasticfsm logs to a stream (default: stderr); returns the handler, to be removed at the end."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if lines else Lines())
    logger = logging.getLogger("elasticfsm")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def remove(handler: logging.Handler) -> None:
    """Undo `to`."""
    logging.getLogger("elasticfsm").removeHandler(handler)
