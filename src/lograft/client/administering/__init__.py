"""The requests of the admin client, grouped by subject: functions over
`request_driver.RequestDriver`, which the methods of `lograft.client.admin.Admin` call and document.

Every request goes through `RequestDriver.outcomes_of`, which gets the items, a lookup that finds
the node of each item (any broker, the controller, a coordinator, a leader), and a function that
sends one request to a node. It looks up the nodes, sends all requests concurrently, and retries
transient errors until `default.api.timeout.ms` expires.
"""
