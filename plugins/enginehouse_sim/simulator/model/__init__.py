"""The model, which generates the same made-up tokens in every process."""
