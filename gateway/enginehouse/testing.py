"""The test kit has its own package, ``enginehouse_kit``: an import from here says so."""

raise ImportError(
    "the test kit is 'enginehouse_kit.testing' now, with 'enginehouse_kit.gateway' and 'enginehouse_kit.engines' for "
    "real processes and 'enginehouse_kit.pytest_plugin' for the types of fixtures"
)
