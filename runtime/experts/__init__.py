"""Experts: where they live (placement), where they should (plan), and how they get there (rebalance)."""
