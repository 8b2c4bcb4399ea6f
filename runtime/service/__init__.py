"""A deployment for operators: HTTP routes, metrics, logs, and the process in the foreground."""
