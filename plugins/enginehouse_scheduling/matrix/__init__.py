"""The ``matrix`` swapper. Expressions pass ``source``, ``tokens``, ``parser``, ``sets``, ``program``, ``solve``."""
