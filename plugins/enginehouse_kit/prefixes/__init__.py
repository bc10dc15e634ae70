"""For strategies: the beginnings of prompts that each engine probably has in its prefix cache."""
