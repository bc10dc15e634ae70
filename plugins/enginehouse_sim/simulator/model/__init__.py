"""The model: generates made-up tokens that are the same in every process."""
