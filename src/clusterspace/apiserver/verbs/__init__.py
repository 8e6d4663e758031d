"""What a request may ask of a resource.

resource_request.py  the request as one value: its body read and checked, objects to answers
read.py          get and list: one object, or a page with its continue token, at a revision;
                 and of kinds that nobody stores
watch.py         initial events, live events, bookmarks, the end
write.py         create, update, delete, four kinds of patch; `change`: read, edit, check, write
subresources.py  those with rules of their own: scale, evictions, bindings, a namespace's end;
                 exec, attach, port-forward and proxies, as admission is asked of them
evictions.py     deletes of pods that a disruption budget must have room for
proxy.py         a member's own API, through the hub
"""
