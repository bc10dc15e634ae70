"""Measures what the gateway costs, compared with the engine alone and with other gateways, in one run.

::

    engine        a minimal engine
    contenders    the servers that are measured, and the processes whose time is counted
    clients       many clients in one process, and their measurements
    rounds        measures the contenders in turn, and compares their figures round by round
"""
