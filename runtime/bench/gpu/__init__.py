"""Measurements on GPUs: what a switch, a transfer, a rebalance and a size cost, as ratios within one run."""
