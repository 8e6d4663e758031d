"""The kinds we know: the built-in table, and our own kinds, one module per noun."""
