"""What the API server decides itself when a built-in object is created, replaced or reported on.

    prepare     the steps of create, update and status update, and what differs by kind; start here
    creation    what new objects of some kinds are given: a phase, a selector, a requester; and what
                the server's own admission plug-ins add

Clients own the spec, controllers own the status, and the server owns the generation and a few
marks of its own. The functions see objects in normal form with their defaults, and leave names,
uids and versions to the caller.
"""
