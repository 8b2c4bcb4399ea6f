"""Other model checkers judge what ours judges."""
