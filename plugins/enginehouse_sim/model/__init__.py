"""What the model does: tokens out of tokens, made up, and the same everywhere."""
