"""Weights from peers: one transfer interface, read by NIXL or sent over a process group."""
