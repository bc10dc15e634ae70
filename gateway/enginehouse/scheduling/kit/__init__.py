"""The kit for authors of schedulers: bookkeeping of queues, swaps and starvation, without any decision."""
