"""Services of plugins, and the gateway as they see it.

::

    service_runner    starts and stops services
    service_calls     calls them, and contains their failures
    service_access    the gateway as a service sees it
    submission        a request of a service's own
"""
