"""`python -m elasticfsm`."""

from elasticfsm.cli import main

if __name__ == "__main__":
    main()
