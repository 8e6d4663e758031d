"""Who a credential stands for, and how credentials come to be, are renewed and end.

authentication.py          request to user; all verbs and tasks of this package, for one hub
bearer_tokens.py           every kind of bearer token, static ones among them; TokenReview
service_account_tokens.py  service-account tokens: asked for (TokenRequest), signed, read, checked
service_accounts.py        `default` and `kube-root-ca.crt` in every namespace; Secrets with a token
oidc.py                    tokens of issuers: their keys, their claims, whom they mean
bootstrap_tokens.py        the first credential of a new cluster: read, checked, spent, removed
revocations.py             credentials that were revoked, in memory for every request
agents.py                  agents of clusters: their names, and whose certificates no longer count
nodes.py                   who is a node, and for which accounts it may have tokens
certificates/              certificate requests: judged, approved, signed
authority.py               our own certificate authorities, one of which signs; certificates
credentials_in_use.py      who still uses what an authority or a key signed that is on its way out
config_maps.py             cluster-info and whose client certificates count, published for others
following.py               how controllers here follow, read and write the store

No credential is believed because it once was: every use looks at the account, the Secret or the
cluster it stands for. Nothing here logs a token, a key or a Secret.
"""
