"""Services of plugins, and the gateway as they see it.

::

    service_runner    starts and stops services, and contains their failures
    service_access    the gateway as a service sees it
    submission        a request of a service's own
    engine_figures    what engines report of their load
    joined_backends   backends that services found, in the configuration
    model_sizes       how many replicas services want, in the configuration
"""
