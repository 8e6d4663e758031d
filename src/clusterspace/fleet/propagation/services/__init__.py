"""Services between clusters: endpoints that one cluster reports, in the clusters that import them.

exports.py                 ServiceExport: reports of clusters to EndpointSlices on the hub
imports.py                 ServiceImport: the Service `derived-NAME` that goes with it
multi_cluster_services.py  MultiClusterService: its Service and its endpoints, where it says
dispatch.py                the Works a MultiClusterService calls for; what may be removed of them

What a cluster exports it reports in the status of the Work that asks for it; fleet/execution reads
it there. A ServiceImport takes its Service and its slices along as any template its dependencies.
"""
