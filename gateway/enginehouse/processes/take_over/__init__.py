"""A new gateway takes over a running one: its listening sockets, its engines, its lock, its clients' connections.

Read the modules in this order::

    messages            what the two processes say to each other
    channel             messages and file descriptors over a unix socket in the state folder
    new_side            the side of the gateway that takes over
    successor           that gateway, as the one that leaves sees it: it gets the clients' connections

The side of the gateway that runs is ``processes/replacement``.
"""
