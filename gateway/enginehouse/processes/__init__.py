"""All that knows of more than one process of a gateway.

::

    workers/      shares the work among processes
    take_over/    lets a new process take over
"""
