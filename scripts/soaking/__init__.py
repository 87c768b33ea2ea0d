"""What scripts/soak is made of: random request shapes, a client that may vanish at any byte, and the audit afterwards."""
