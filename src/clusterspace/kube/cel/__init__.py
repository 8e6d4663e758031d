"""The Common Expression Language as Kubernetes uses it: rules for objects, policies for requests.

    text -> tokens -> syntax tree -> program -> true, false or an error
    schema -> types ------------------^

types.py        types, and the signatures of functions: `string.charAt(int) -> string`
values.py       values: equality, kinds, timestamps, optionals; the budget that pays for work
syntax.py       the syntax tree, and faults in the text it came from
parser.py       text to tokens to the tree; macros are recognised here
libraries/      every function there is, by subject
compiler.py     the tree to a program: names and types checked, functions chosen, macros
schema_types.py schemas to types, and objects to values
costs.py        what an expression may cost at most, before there is an object
requests.py     expressions about requests: the variables, types and budgets of policies
rules.py        the entries of `x-kubernetes-validations`: compiled, checked for faults, obeyed

Work is bounded: an expression has a limited depth, and every step is paid for from a budget.
https://kubernetes.io/docs/reference/using-api/cel/
"""
