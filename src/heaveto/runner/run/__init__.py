"""One run while this process carries it, from its agents' work to its one ending."""
