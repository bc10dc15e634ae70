"""How long a step takes: profiles of engines, and what a step has to do."""
