"""What each kind of request needs of an engine, and how its answer is judged."""
