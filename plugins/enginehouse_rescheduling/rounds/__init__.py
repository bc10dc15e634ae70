"""The rounds of rescheduling: see, plan, carry out.

::

    cluster, placed_requests, reservations   make the view of the cluster
    planner, pair_rules, recent_moves        plan (pure), and drop pairs that must not be carried out
    dispatcher, means                        carry a plan out, with the configured migrators
"""
