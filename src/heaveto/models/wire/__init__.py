"""Requests as each provider wants them: pure encoders from neutral turns to request bodies.

Every encoder is total on turns that keep the grammar of `heaveto.core.request`, and deterministic: caches and signed
thinking bind to the exact prefix.
"""
