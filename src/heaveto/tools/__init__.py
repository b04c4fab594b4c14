"""Tools: the interface (`base`), functions as tools (`function`), and the context that a tool gets."""
