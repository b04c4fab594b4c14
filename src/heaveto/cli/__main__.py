"""``python -m heaveto.cli``."""

from heaveto.cli import main

main()
