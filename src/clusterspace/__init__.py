"""A fleet of Kubernetes clusters, usable as one."""

__version__ = "0.1.0"
