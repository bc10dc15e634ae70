"""Engines: launching, supervising, probing and stopping them.

::

    launch_line   configuration + driver + port -> what to run
    ports         loopback ports to run it on
    local         the bundled launcher: a process group of its own, here
    log_ring      what the engine printed, bounded, followed by whoever asks
    supervisor    one managed engine: started, ready, gone
    prober        every backend, asked again and again how it is and what it serves
    health_check  one such question
    bounded       a time limit that holds
"""
