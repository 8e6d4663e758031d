"""What OpenAPI 3.0 says of the resources the hub serves, as pure functions of the catalog.

    served resources -> paths -> operations (which parameters, bodies, answers?)
                     -> components (what is known of every kind the operations name)

names.py       how definitions, operations and tags are called
operations.py  what one verb on one path takes and answers
paths.py       which paths a resource has, and which verbs each allows
components.py  definitions of kinds, built-in and custom, and of all they refer to
documents.py   the whole document of one group version, or of one discovery root
digests.py     what a document is made from, as a hash: known before the document is made

Facts, no prose: the only sentences in a document are those of a custom resource's own schema.
"""
