"""The pure core: what a log means (`fold`), what to do next (`plan`), what a model is told (`project`), how a run is
closed (`close`), and which histories providers accept (`validate`). No await, no clock, no randomness.
"""
