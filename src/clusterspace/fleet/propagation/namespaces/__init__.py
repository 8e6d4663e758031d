"""Every namespace of the hub, on every cluster.

controller.py   NamespaceWorks: one Work per namespace and cluster
"""
