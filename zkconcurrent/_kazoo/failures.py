"""kazoo's errors, in the library's terms: as the failures of operations, or as errors that a program gets."""

from __future__ import annotations

from kazoo import exceptions as kazoo_errors

from .._errors import RefusedError
from .._protocol import operations as op
from .requests import TooLarge

__all__ = ["NOT_THE_CAUSE", "failure", "kazoo_errors"]


def failure(error: Exception, path: str) -> Exception:
    """Translate kazoo's error into an operation's failure, or into the library's error if no recipe can handle it."""
    for kind, failure_of in _FAILURES:
        if isinstance(error, kind):
            failed = failure_of()
            failed.part = getattr(error, "part", 0)
            return failed
    if isinstance(error, kazoo_errors.SessionExpiredError):  # also ConnectionClosedError
        return op.SessionExpired()
    if isinstance(error, _CONNECTION_ERRORS):
        return op.ConnectionLost()
    if isinstance(error, TooLarge):
        size, limit = error.args
        return RefusedError(
            path,
            f"the request has {size:,} bytes and is not sent, as ZooKeeper would end the connection: the limit is "
            f"{limit:,} (a client's `max_request`, below the servers' jute.maxbuffer)",
        )
    if isinstance(error, kazoo_errors.KazooException):
        reason = _REASONS.get(type(error), "see the server's log")
        return RefusedError(path, f"ZooKeeper refused the request ({type(error).__name__}): {reason}")
    return error


_FAILURES: tuple[tuple[type[Exception], type[op.Failure]], ...] = (
    (kazoo_errors.NoNodeError, op.NoNode),
    (kazoo_errors.NodeExistsError, op.NodeExists),
    (kazoo_errors.BadVersionError, op.BadVersion),
    (kazoo_errors.NotEmptyError, op.NotEmpty),
    (kazoo_errors.ThrottledOpError, op.Busy),
)
# The results of those operations of a failed multi that did not fail themselves.
NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_CONNECTION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.ThrottledOpError,
)
_TOO_OLD = "zkconcurrent needs ZooKeeper 3.5.3 or newer"
_REASONS = {
    kazoo_errors.NoAuthError: "this client may not do that here; give it credentials (auth_data) or change the ACL",
    kazoo_errors.AuthFailedError: "the client's credentials were not accepted; correct them and open a new client",
    kazoo_errors.InvalidACLError: "the client's default_acl is not valid for its credentials",
    kazoo_errors.NotReadOnlyCallError: "the server is read-only while it is cut off; try again once it has a quorum",
    kazoo_errors.QuotaExceededError: "the quota of the path is used up",
    kazoo_errors.EphemeralOnLocalSessionError: (
        "the servers have localSessionsEnabled, which locks can use only with localSessionsUpgradingEnabled"
    ),
    kazoo_errors.NoChildrenForEphemeralsError: "a node above the path is ephemeral and can't have children",
    kazoo_errors.UnimplementedError: _TOO_OLD,
    # The error for a request with a part that the server does not know.
    kazoo_errors.MarshallingError: _TOO_OLD,
    kazoo_errors.SessionClosedRequireSaslError: (
        "the servers demand credentials: a user and a password (auth_data), or SASL (sasl_options)"
    ),
}
