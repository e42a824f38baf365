"""`python -m lograft` is the command `lograft`, also where its script is not on PATH."""

from lograft.cli.main import main

if __name__ == "__main__":
    main()
