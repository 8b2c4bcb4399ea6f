"""A composed protocol in the languages of other model checkers, written from the program, never from our explorer."""
