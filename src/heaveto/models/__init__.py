"""Models: the interface (`base`), requests on the wire (`wire`), and connectors."""
