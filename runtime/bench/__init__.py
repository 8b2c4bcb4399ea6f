"""Benchmarks: each measures alternatives side by side in one run, so that ratios hold on any machine."""
