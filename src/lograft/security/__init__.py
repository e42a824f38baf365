"""Who somebody is and what they may do: principals, SASL mechanisms, credentials, ACLs.

Pure: no I/O, no clock; randomness comes in as an argument. So far operations, resources and the
protocol of an authorizer (`authorization`), the credentials of SCRAM users, which formatting
writes (`scram_credentials`), and principals as bytes (`principals`).
"""
