"""`python -m teabert.cli`, the same as `teabert`."""

from teabert.cli import main

if __name__ == "__main__":
    main()
