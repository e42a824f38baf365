"""Security decisions: SASL exchanges, permissions, principals and the credentials of users.

Pure: no I/O, no clock, no randomness.

Entry points: `plain`, `scram`, `oauthbearer` and `gssapi` are the SASL mechanisms of a server, as
exchanges of bytes that `sasl` defines; `client_sasl` defines those of a client, which
`client_mechanisms` creates; `json_web_tokens` verifies tokens with the keys of `json_web_keys`;
`scram_credentials` derives what is stored instead of a password; `authorization` defines
operations, resources and the `Authorizer` protocol that `api/` calls; `standard_authorizer`
implements it over `acls`; `principals` encodes the principal of a forwarded request.

Invariants: an exchange never raises, and its results never contain a secret; secrets are compared
in constant time; operations and resource types have the numbers of Kafka's ACLs; an `Authorizer`
returns immediately.
"""
