"""The ``matrix`` swapper. ``expressions`` reads its sets, ``solve`` compiles them and finds the best one."""
