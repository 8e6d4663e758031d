"""The Common Expression Language as CustomResourceDefinitions use it: rules that objects must obey.

    text -> tokens -> syntax -> program -> true, false or an error
    schema -> types ----------^

faults.py       what can be wrong: a rule that does not compile, a value it cannot be asked about
tokens.py       text to tokens
syntax.py       the tree an expression is read into
parser.py       tokens to the tree; macros are recognised here
types.py        what is known of a value before there is one
values.py       what a value is when there is one: equality, kinds, times, optionals
signatures.py   functions declared in one line each: `string.charAt(int) -> string`
libraries/      every function there is, by subject
compiler.py     the tree to a program: names and types checked
calls.py        choosing the way to call a function
programs.py     a compiled expression, ready to run
comprehensions.py  the macros that go through lists and maps
schema_types.py schemas to types, and objects to values
rules.py        one entry of `x-kubernetes-validations`, compiled
checking.py     may this schema have these rules?
evaluation.py   does this object obey its rules?

Work is bounded: a program has a limited depth, and every step it takes is paid for from a budget.
https://kubernetes.io/docs/reference/using-api/cel/
"""
