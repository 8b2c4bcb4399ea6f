"""Rescale a running expert-parallel model without dropping a request, from a protocol that was model-checked."""

__version__ = "0.1.0"
