"""For strategies: which beginnings of prompts each engine has in its prefix cache, as far as this gateway knows."""
