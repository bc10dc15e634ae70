"""Conformance checks: each calls a plugin with many samples and checks the rules of its interface.

Pass a factory that returns a new instance::

    def test_it_keeps_the_rules_of_a_filter() -> None:
        check_filter(lambda: create("filter", "my_filter", {"size": 3}))

A violation raises ``AssertionError`` with the rule and the offending value. A slow plugin gets a ``SlowPluginWarning``.
"""
