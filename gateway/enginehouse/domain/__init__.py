"""The data types that all parts of the gateway share. They have no behaviour beyond their own invariants."""
