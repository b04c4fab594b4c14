"""``python -m heaveto``: the command ``heaveto``."""

from heaveto.cli import main

main()
