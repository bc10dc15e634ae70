"""``enginehouse bench``: measures what the gateway costs, compared with the engine alone and with other gateways.

::

    bench_command  the command and its options
    report         one run, and its report as an object or as tables
    rounds         measures the contenders in turn, and compares their figures round by round
    contenders     the servers that are measured, and the processes whose time is counted
    clients        many clients in one process, and their measurements
    engine         a minimal engine
"""
