"""What the rooms of the engine exchange: requests, limits, and what goes in and out of a step."""
