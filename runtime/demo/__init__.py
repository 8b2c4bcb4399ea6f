"""The demo: a real model grows and shrinks while it serves, and a report that says whether every token was right."""
