"""Certificate requests: judged, approved, signed; and our own certificates, renewed.

requests.py   what a CertificateSigningRequest asks for, read once
judgement.py  may this agent have that certificate? a pure decision
issuing.py    what a signer issues, and the certificate itself
subjects.py   whom nobody may ask to become
verbs.py      the doors of the API: approval and status
signer.py     follows requests: approves agents, signs what is approved
expiry.py     requests that are settled or forgotten go away
renewal.py    our own certificates, renewed before they expire

A request's own words become a certificate only through `issuing.py`: subject and key are taken
over, everything else is ours.
"""
