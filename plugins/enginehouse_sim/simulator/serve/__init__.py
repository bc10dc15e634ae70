"""``enginehouse sim serve``: the simulated engine as a server process."""
