"""The processes of a gateway: the one that serves, those that share its work, and the one that replaces it.

::

    serve               runs the gateway, for ``enginehouse serve`` and for commands of plugins
    gateway_server      the server of the gateway: its start, signals and end
    accepting           a server that may stop to accept, and whose connections may pass to another gateway
    listen              the sockets on which it listens
    replacement         lets another process take over, and starts one
    workers/            shares the work among processes
    take_over/          the two processes of a take-over, and what they say to each other
"""
