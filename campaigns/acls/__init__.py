"""Runs of clusters whose ACLs change while producers, consumers and groups work.

Entry points: `run.run_acls` runs a seed, `mutants.ACL_MUTANTS` has removed safeguards, and `watch`
checks the responses of every node."""
