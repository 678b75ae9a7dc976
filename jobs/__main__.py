"""`python -m jobs`, and the entry point of the installed `pagemill` and `jobs`."""

from __future__ import annotations

from jobs.cli.app import app


def main() -> None:
    app(prog_name="pagemill")


if __name__ == "__main__":
    main()
