"""Services of plugins, and the gateway as they see it.

::

    service_runner    starts and stops services, and contains their failures
    service_access    the gateway as a service sees it
    submission        a request of a service's own
    status_puller     what engines report of their load
    service_changes   what services change of a configuration: backends that they found, and numbers of replicas
"""
