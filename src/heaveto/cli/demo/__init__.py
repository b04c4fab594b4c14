"""``heaveto demo``: the promises, shown and checked with a real connector, real HTTP and a real kill -9."""
