"""Draws a protocol from its spec: state diagrams, a sequence chart, an engine, and an index of every state."""

from __future__ import annotations

from elasticfsm.draw.gallery import stale, texts, write

__all__ = ["stale", "texts", "write"]
