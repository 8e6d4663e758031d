"""Every function that a rule may call, by subject.

operators.py    arithmetic, comparison, membership, conversion
texts.py        strings and regular expressions
formatting.py   `'%s of %d'.format([…])`
collections.py  lists, sets and optionals
times.py        timestamps and durations
network.py      URLs, IP addresses and CIDR blocks
amounts.py      quantities and semantic versions
formats.py      named formats, such as DNS labels
catalog.py      all of them in one table
"""
