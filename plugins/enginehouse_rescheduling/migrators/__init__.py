"""The bundled migrators, one package or module for each way to move requests."""
