"""A shell of the simulation's own: a tiny language on files that exist only in memory.

files.py        the files of one container, with a limit on their size
language.py     command lines to pipelines: quotes, variables, redirections
processes.py    what a running command has: arguments, environment, files, its three streams
commands.py     echo, cat, ls and the like
archives.py     tar, both ways, as `kubectl cp` needs it
interpreter.py  runs pipelines, and reads them from a person
line_editing.py what a terminal does with keys

Nothing here opens a file, starts a process or looks anything up on the machine it runs on.
"""
