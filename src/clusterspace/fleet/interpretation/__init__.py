"""What people say about kinds of their own: scripts in Lua, run where they harm nobody; webhooks.

interpreter.py      the seam that controllers ask: a script, else a webhook, else what we know
customizations.py   the eight operations of a ResourceInterpreterCustomization, and what they return
lua_workers.py      processes that run scripts; one that takes too long is ended, and another begun
lua_sandbox.py      what such a process does: one script, one function, a budget, no way out
webhooks.py         a webhook is sent an object, and answers one of the eight operations
"""
