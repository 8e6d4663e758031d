"""What OpenAPI says of the resources the hub serves, as pure functions of the catalog.

    served resources -> paths -> operations (which parameters, bodies, answers?)
                     -> components (what is known of every kind the operations name)

names.py      how definitions, operations and tags are called; the few sentences of ours
paths.py      which paths a resource has, which verbs each allows, what each takes and answers
documents.py  the whole document of one group version or discovery root: paths and definitions;
              its hash, known before the document is made
swagger.py    the one document of OpenAPI 2.0, joined from what those documents say
gnostic.py    that document as protobuf

Facts, no prose: the only sentences in a document are those of a custom resource's own schema, and
one for each field that every object has.
"""
