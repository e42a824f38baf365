"""One module per Kafka API. `router` decodes a request, calls its handler and encodes the response.

A module named like its API (`create_topics` for CreateTopics) has

    API: Final = Api(key=19, versions=range(2, 8), needs=each_item(CLUSTER_CREATE, TOPIC_CREATE))
    def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse: ...

and is served, and advertised, on the listeners on which the protocol has this API. `needs` names
the operations and resources that its requests require (`types`, `authorization`). `handle` may be
`async def`, or a plain function that returns the response, or a coroutine if it must wait: a plain
response needs no task. The module may have

    def error_response(request: XRequest, code: ErrorCode, message: str) -> XResponse: ...

for errors that fail the whole request. Without it the response has only a top-level error code; if
the response has no such field, the connection is closed.

Invariants: an API is advertised exactly if it has a module; a LograftError leaves this package only
as an error code; the frame of a request is invalid after the first await.

Entry points: `router.Router`, `context.Context`, `errors.code_of`.
"""
