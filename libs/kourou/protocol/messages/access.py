"""Requests about users and their policies: RocketMQ 5.3's (3001 to 3010), and Kourou's own."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class AuthCreateUser(Request, kw_only=True, frozen=True):
    """AUTH_CREATE_USER (3001): create a user; the body is a user."""

    code: ClassVar[int] = 3001
    username: str
    reason: str = ""  # the reason, for the history


class AuthUpdateUser(Request, kw_only=True, frozen=True):
    """AUTH_UPDATE_USER (3002): change a user; what the body lacks stays as it is."""

    code: ClassVar[int] = 3002
    username: str
    reason: str = ""


class AuthDeleteUser(Request, kw_only=True, frozen=True):
    """AUTH_DELETE_USER (3003): delete a user with the secret and the policies."""

    code: ClassVar[int] = 3003
    username: str
    reason: str = ""


class AuthGetUser(Request, kw_only=True, frozen=True):
    """AUTH_GET_USER (3004): get a user, without the secret; no body if it does not exist."""

    code: ClassVar[int] = 3004
    username: str


class AuthListUser(Request, kw_only=True, frozen=True):
    """AUTH_LIST_USER (3005): get the users whose name contains `filter`, without their secrets."""

    code: ClassVar[int] = 3005
    filter: str | None = None


class AuthCreateAcl(Request, kw_only=True, frozen=True):
    """AUTH_CREATE_ACL (3006): add policies of `subject`, `User:NAME`; the body has them."""

    code: ClassVar[int] = 3006
    subject: str
    reason: str = ""


class AuthUpdateAcl(Request, kw_only=True, frozen=True):
    """AUTH_UPDATE_ACL (3007): the same; a policy for a resource replaces that resource's."""

    code: ClassVar[int] = 3007
    subject: str
    reason: str = ""


class AuthDeleteAcl(Request, kw_only=True, frozen=True):
    """AUTH_DELETE_ACL (3008): remove the policies of a subject, for one resource or for all."""

    code: ClassVar[int] = 3008
    subject: str
    policy_type: str | None = None
    resource: str | None = None
    reason: str = ""


class AuthGetAcl(Request, kw_only=True, frozen=True):
    """AUTH_GET_ACL (3009): get the policies of a subject; no body if it has none."""

    code: ClassVar[int] = 3009
    subject: str


class AuthListAcl(Request, kw_only=True, frozen=True):
    """AUTH_LIST_ACL (3010): get policies by parts of their subject and resource."""

    code: ClassVar[int] = 3010
    subject_filter: str | None = None
    resource_filter: str | None = None


class SetAccessMode(Request, kw_only=True, frozen=True):
    """SET_ACCESS_MODE (30060, Kourou's own): ignore, observe or enforce decisions.

    `door` is the one whose requests are concerned: remoting, zeromq or http; "" for all.
    """

    code: ClassVar[int] = 30060
    mode: str
    reason: str = ""
    door: str = ""


class GetAccessStatus(Request, kw_only=True, frozen=True):
    """GET_ACCESS_STATUS (30061, Kourou's own): get mode, version and what was refused."""

    code: ClassVar[int] = 30061


class GetAccessStatusResponse(Response, kw_only=True, frozen=True):
    """`mode` is the one that was set, `effective` is off without users; the body has refusals.

    `doors` has the modes of the doors that have one of their own.
    """

    mode: str
    effective: str
    version: Int64
    users: Int64
    allowed: Int64
    refused: Int64
    doors: dict[str, str] = {}


class GetAudit(Request, kw_only=True, frozen=True):
    """GET_AUDIT (30068, Kourou's own): get refused requests and allowed changes, the newest first.

    `user` and `request` (a name such as `SendMessage`) are exact, "" is any; times are epoch ms.
    `decision` is `refused` or `allowed`, "" is both. `before` is that of the former reply, for the
    next page. A page may be empty and not the last.
    """

    code: ClassVar[int] = 30068
    user: str = ""
    request: str = ""
    since_ms: Int64 | None = None
    until_ms: Int64 | None = None
    max_count: Int32 = 100
    before: str = ""
    decision: str = ""


class GetAuditResponse(Response, kw_only=True, frozen=True):
    """`before` continues with older ones; "" if there are none."""

    before: str = ""


class ExplainAccess(Request, kw_only=True, frozen=True):
    """EXPLAIN_ACCESS (30062, Kourou's own): whether a user may do something, and why.

    Without `username` it is about the sender.
    """

    code: ClassVar[int] = 30062
    username: str
    action: str
    resource: str
    source: str = ""


class ExplainAccessResponse(Response, kw_only=True, frozen=True):
    """`by` names the policy or role that decided; `nearest` is what comes nearest to allowing."""

    allowed: bool
    by: str
    nearest: list[str] = []


class CheckCredential(Request, kw_only=True, frozen=True):
    """CHECK_CREDENTIAL (30063, Kourou's own): whether a secret is that of a user.

    The body is a user with the secret as its password. With `credential` there is no body: is the
    secret still the one that had this id? With `subject` there is neither a body nor a name: to
    whom do certificates with this subject belong? With `digest` neither: whose API token has this
    SHA-256 (hexadecimal)? With `password` neither: what is the hash of the user's password?
    """

    code: ClassVar[int] = 30063
    username: str
    credential: str = ""
    subject: str = ""
    digest: str = ""
    password: bool = False


class CheckCredentialResponse(Response, kw_only=True, frozen=True):
    """`credential` is the id of the secret at this broker, "" if it is not `valid`.

    `has_users` is False at a broker that has no users, and decides nothing. `username` is the owner
    of a certificate who may sign in, or the name of an API token (USER:ID). `refusal` is why a
    token that the broker knows is not valid. `password_hash` is for a console to check passwords,
    because a check takes long.
    """

    valid: bool
    has_users: bool
    credential: str = ""
    username: str = ""
    refusal: str = ""
    password_hash: str = ""


class CreateApiToken(Request, kw_only=True, frozen=True):
    """CREATE_API_TOKEN (30069, Kourou's own): give a user a token, by its SHA-256 (hexadecimal).

    `scope` is a role, as `writer` or `writer:orders-`; times are epoch ms.
    """

    code: ClassVar[int] = 30069
    username: str
    digest: str
    scope: str
    created_ms: Int64
    expires_ms: Int64
    reason: str = ""


class RevokeApiToken(Request, kw_only=True, frozen=True):
    """REVOKE_API_TOKEN (30070, Kourou's own): revoke the token of a user with this id."""

    code: ClassVar[int] = 30070
    username: str
    token_id: str
    reason: str = ""


class ListApiTokens(Request, kw_only=True, frozen=True):
    """LIST_API_TOKENS (30071, Kourou's own): get the tokens of a user, or of all."""

    code: ClassVar[int] = 30071
    username: str = ""


class SetOwnPassword(Request, kw_only=True, frozen=True):
    """SET_OWN_PASSWORD (30074, Kourou's own): give the sender another password, or none.

    The body is a user with nothing but the hash of the password, "" for none.
    """

    code: ClassVar[int] = 30074
    reason: str = ""


class CreateOwnToken(Request, kw_only=True, frozen=True):
    """CREATE_OWN_TOKEN (30075, Kourou's own): give the sender a token; see CREATE_API_TOKEN."""

    code: ClassVar[int] = 30075
    digest: str
    scope: str
    created_ms: Int64
    expires_ms: Int64
    reason: str = ""


class RevokeOwnToken(Request, kw_only=True, frozen=True):
    """REVOKE_OWN_TOKEN (30076, Kourou's own): revoke the token of the sender with this id."""

    code: ClassVar[int] = 30076
    token_id: str
    reason: str = ""


class ListOwnTokens(Request, kw_only=True, frozen=True):
    """LIST_OWN_TOKENS (30077, Kourou's own): get the tokens of the sender."""

    code: ClassVar[int] = 30077


class ReportRefusals(Request, kw_only=True, frozen=True):
    """REPORT_REFUSALS (30078, Kourou's own): note in the audit what the sender refused itself.

    The body has the refused requests by kind; see ReportedRefusal.
    """

    code: ClassVar[int] = 30078


class TryPolicies(Request, kw_only=True, frozen=True):
    """TRY_POLICIES (30079, Kourou's own): what changes of policies would do with recent requests.

    The body has the changes, in their order; see PolicyChange. Without any, the present policies
    are tried, whatever the mode. `since_ms` is epoch ms; None: as long as counts are kept. Nothing
    is changed.
    """

    code: ClassVar[int] = 30079
    since_ms: Int64 | None = None


class TryPoliciesResponse(Response, kw_only=True, frozen=True):
    """The body has what would be refused, and what would be allowed instead, by kind.

    `requests` were counted since `since_ms` (0: none), by day: of the first day, kinds whose last
    request was earlier are left out. `refused` of them would be; `untried` have no kind of their
    own. `more`: the body has not all kinds.
    """

    requests: Int64
    refused: Int64
    untried: Int64
    since_ms: Int64
    more: bool = False
