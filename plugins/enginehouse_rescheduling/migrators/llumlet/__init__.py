"""``llumlet``: engines move requests themselves, with their KV cache, on Llumnix's command."""
