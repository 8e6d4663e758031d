"""A shell of the simulation's own: a tiny language on files that exist only in memory.

processes.py    what a running command has: arguments, environment, its three streams, and the
                files of its container, with a limit on their size
commands.py     the table of commands: echo, cat, ls, tar and the like; a new one is a row there
interpreter.py  reads command lines and runs them, from a text or from a person

Nothing here opens a file, starts a process or looks anything up on the machine it runs on.
"""
