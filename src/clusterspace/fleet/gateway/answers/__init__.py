"""A route to its answer: one module for each way a request reaches clusters.

single.py         one cluster, named by the request or looked for; its events too
known_lists.py    one member's list, of which only what is new is read whole
list_all.py       all clusters: lists, whole or page by page
watch_all.py      all clusters: watches, from where each begins to the end of the stream
cluster_feeds.py  what one cluster sends into such a stream, without end
search.py         Karmada's search: what ResourceRegistries select, of all clusters or of one
reviews.py        may I: asked of all clusters
documents.py      what is about the fleet itself: discovery, schemas, version, health
"""
