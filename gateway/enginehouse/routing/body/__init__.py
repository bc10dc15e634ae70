"""Request bodies: reads the fields that routing needs, replaces the model's name, applies a model's body filters."""
