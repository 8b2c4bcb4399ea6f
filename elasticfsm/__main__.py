"""`python -m elasticfsm`, and the script `elasticfsm`: light, so that Ctrl-C is heard while the rest is imported."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends with 130, as later."""
    try:
        from elasticfsm.cli import main as run
    except KeyboardInterrupt:
        print("elasticfsm: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
