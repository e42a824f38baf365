"""DescribeUserScramCredentials, version 0: SCRAM mechanisms and iterations of users, no secrets.

Reads the metadata image. An empty list or null selects all users with credentials.
"""

from collections import Counter
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

API: Final = Api(key=50, versions=range(1), needs=whole_request(CLUSTER_DESCRIBE))


def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    image = context.shared.image
    requested = Counter(user.name for user in request.users or ())
    if not requested:
        requested = Counter({name: 1 for _, name in image.scram})
    credentials = _credentials_by_user(image)
    results = []
    for user, count in requested.items():
        result = DescribeUserScramCredentialsResult(user=user, error_message=None)
        if count > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"User {user!r} appears more than once in the request."
        elif user not in credentials:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"User {user!r} has no SCRAM credentials."
        else:
            result.credential_infos = credentials[user]
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _credentials_by_user(image: MetadataImage) -> dict[str, list[CredentialInfo]]:
    credentials: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), record in image.scram.items():
        info = CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        credentials.setdefault(user, []).append(info)
    return credentials
