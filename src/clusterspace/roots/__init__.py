"""Composition roots: the only modules that build things."""
