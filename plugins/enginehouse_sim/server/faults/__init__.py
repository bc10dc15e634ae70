"""What can be made to go wrong, and when it does."""
