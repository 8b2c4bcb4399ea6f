"""Policies: pure functions from loads and a placement to the next placement, and the bounds they are measured by."""
