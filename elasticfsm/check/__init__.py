"""The model checker: every reachable interleaving of a protocol, and a verdict for every property."""
