"""Measures what the gateway costs: against the engine asked directly, and against other gateways, in one run.

::

    engine        an engine that costs almost nothing
    contenders    the servers that are measured, and the processes whose time is counted
    clients       many clients in one process, and what they saw
    rounds        asks the contenders in turn, and compares their figures round by round
"""
