"""A revisioned key-value log: put, range, watch, compact."""
