"""The types that the folders of the engine exchange: requests, limits, and the input and output of a step."""
