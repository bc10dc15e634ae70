"""The bundled strategies: they route by the figures that engines report."""
