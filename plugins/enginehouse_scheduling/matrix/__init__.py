"""The ``matrix`` swapper. An expression's way: ``source``, ``tokens``, ``parser``, ``sets``, ``program``, ``solve``."""
