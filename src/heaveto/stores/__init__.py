"""Stores: where logs are durable. One interface (`base`), and its implementations."""
