"""Models with a range of replicas get more or fewer of them, as their load wants, without a reload."""
