"""What an object is called: from its cluster's words to the client's words, and back.

    places (which fields hold names?) -> edits (change them, touch nothing else) -> the same object

edits.py   JSON text changed in a few places; everything else stays as it was written
places.py  the table of fields that hold names, and what becomes of them on the way out and in
tables.py  the same for rows and cells of Tables

Pure, and below the steps that use it: lists are merged by it, single bodies rewritten by it.
"""
