"""Agents: with a model (`llm`), workflows over other agents (`workflow`), an agent as a tool (`tool`), and the base
that custom agents derive from.
"""
