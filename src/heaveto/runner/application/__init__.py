"""What a runner is given: the app with its agents and plugins, and the settings of its runs."""
