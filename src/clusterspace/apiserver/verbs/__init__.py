"""What a request may ask of a resource.

resource_request.py    the request, its resource and options as one value
answers.py objects to answers, in the representation asked for
create.py  names, defaults, rules, write
read.py    get and list: one object, or a page with its continue token, at a revision
watch.py   initial events, live events, bookmarks, the end
change.py  read, edit, check, write; again when somebody else was quicker
update.py  replace
patch.py   four kinds of patch, apply among them
scale.py   the replicas of anything that has them
delete.py  preconditions, finalizers, propagation policy
parts.py   subresources with rules of their own: evictions, bindings, the end of a namespace
proxy.py   a member's own API, through the hub
"""
