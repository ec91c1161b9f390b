"""Every fault we know, injected; the same invariants checked after each."""
