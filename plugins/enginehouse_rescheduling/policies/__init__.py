"""The bundled policies, one module for each purpose."""
