"""The command ``heaveto``.

Data goes to stdout, progress to stderr. Exit codes: see `heaveto.cli.exits`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the script ``heaveto``."""
    try:
        from heaveto.cli.group import heaveto
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("heaveto: the command line needs an optional dependency: pip install 'heaveto[cli]'", file=sys.stderr)
        sys.exit(2)
    heaveto(prog_name="heaveto")
