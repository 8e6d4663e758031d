"""Every exception we raise on purpose, as a tree; each knows its Kubernetes reason and code.

    ClusterspaceError
    ├── ApiError                     what a Kubernetes client is told, as a v1 Status
    │   ├── BadRequest               400  BadRequest
    │   │   └── Malformed            400  a text we cannot read; names what it is and the place
    │   │       ├── MalformedSelector
    │   │       ├── MalformedPatch
    │   │       ├── MalformedQuantity
    │   │       ├── MalformedDuration
    │   │       ├── MalformedTimestamp
    │   │       ├── MalformedSchema
    │   │       ├── MalformedPath
    │   │       └── MalformedObject
    │   ├── Unauthorized             401  Unauthorized
    │   │   └── AuthorityDropped     401  Unauthorized
    │   ├── Forbidden                403  Forbidden
    │   │   └── QuotaExceeded        403  QuotaExceeded, Karmada's reason: no room in a quota
    │   ├── NotFound                 404  NotFound
    │   ├── NotServed                404  NotFound, but of the resource itself, not of an object
    │   ├── MethodNotAllowed         405  MethodNotAllowed
    │   ├── NotAcceptable            406  NotAcceptable
    │   ├── AlreadyExists            409  AlreadyExists
    │   ├── Conflict                 409  Conflict
    │   ├── Expired                  410  Expired
    │   ├── RequestEntityTooLarge    413  RequestEntityTooLarge
    │   ├── UnsupportedMediaType     415  UnsupportedMediaType
    │   ├── Invalid                  422  Invalid; every cause at once
    │   │   └── InapplicablePatch    422  a patch that can be read but not carried out here
    │   │       └── PatchTestFailed  422  one that asks for another value than there is
    │   ├── TooManyRequests          429  TooManyRequests
    │   ├── UnmergeablePatch         500  a strategic merge patch Kubernetes has no reason for
    │   ├── HttpViolation            4xx, 505: a message that breaks HTTP or a limit of the server
    │   ├── InternalError            500  InternalError
    │   ├── BadGateway               502  InternalError, of a cluster that was asked for the client
    │   ├── ServiceUnavailable       503  ServiceUnavailable
    │   └── DeadlineExceeded         504  Timeout
    ├── ClusterError                 a cluster, or the way to it, failed; knows which cluster
    │   ├── ClusterUnreachable       no connection, or it broke before the answer was whole
    │   │   └── AddressNotAllowed    no connection, for its address is one that no member may have
    │   ├── ClusterTimeout           no answer within the deadline
    │   ├── ClusterMisbehaved        an answer no Kubernetes API gives: HTML, a redirect, a half
    │   │   └── AnswerOverrun        an answer that takes more time or memory than it may
    │   ├── NotLeading               a write that was not sent: somebody else leads, or may
    │   └── CredentialsUnusable      a token, certificate or plug-in we cannot use
    │       └── CredentialsUnclaimed they belong to no cluster yet
    ├── UnusableKubeconfig           a kubeconfig that does not say how to reach the cluster
    │   └── KubeconfigMissing        there is no such file, or not yet
    ├── CannotJoin                   a cluster that may not become a member, and why
    ├── CannotLeave                  a cluster that cannot be taken out now, and what it waits for
    ├── CannotPromote                an object that is not taken over, and why
    ├── CannotProve                  what ran before and after cannot be compared, and why
    ├── CannotMigrate                a plan that is not carried out, or not further, and why
    ├── CannotInstall                an API server that cannot be made the hub, and why
    ├── UnusableStatement            SQL that is not run, or was ended, and why
    ├── ScriptFailed                 a script of a customization did not do what it is for
    ├── InterpretationFailed         whoever knows a kind did not say what it was asked
    ├── BlindWrite                   a write of ours that could undo what somebody else wrote
    ├── MixedCommit                  spec and status were changed in one go
    ├── LeadershipLost               somebody else leads now, or may
    ├── Terminal                     a reconcile that retrying cannot help
    ├── OverrideFailed               an override that cannot be made in this object, and why
    ├── SnapshotAltered              a snapshot that does not say any more what was stored in it
    ├── StaysHome                    an object that does not leave the hub, or not this way
    ├── TaskFailed                   a task that must never end has ended
    ├── ComponentFailed              a component of a local fleet that does not start
    ├── SiblingGone                  another worker of the same server has ended, or never ran
    ├── WorkersFailed                workers of a server that do not start, or not here
    ├── PortTaken                    a port that somebody else listens on
    ├── AlreadyRunning               a local fleet that another process runs from this directory
    ├── UnusableDirectory            a data directory that cannot be used as it is
    ├── UnusableConfiguration        a configuration file that says what cannot be
    ├── UnknownPlugin                a flag names an admission plug-in that cannot be switched
    ├── UnknownApi                   a flag names an API that cannot be switched
    ├── StreamBroken                 a peer that breaks the stream protocol it upgraded to
    ├── CommandRefused               what a simulated shell says when a command cannot be done
    └── StoreError                   what the revision log cannot do
        ├── Compacted                the revision asked for has been forgotten
        ├── FutureRevision           the revision asked for has not happened yet
        ├── RevisionMismatch         compare-and-set lost the race
        ├── GuardChanged             the key that a write was tied to has changed
        ├── WatcherEvicted           a reader was too slow and must list again
        ├── Unstorable               a key or value that no store may hold
        ├── StoreFull                no room on the disk; reads go on
        ├── StoreUnavailable         nobody who keeps the log answers; nothing is claimed
        ├── OutcomeUnknown           a write was sent, and no answer came
        ├── StoreClosed              the store was closed while the call waited
        ├── StoreCorrupt             a record does not match its checksum
        ├── CannotOpen               sealed bytes that a key does not open
        └── StoreUnreadable          not a store file, or one written by a newer version

Reasons of our own would be a second vocabulary for what Kubernetes clients already understand,
so API errors use Kubernetes' names and codes and nothing else. Transport failures become ours in
one place of the client, ours become Status bodies in one place of the server.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason a request was refused, as in `status.details.causes`."""

    reason: str
    message: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """What a refusal is about, as in `status.details`."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class ClusterspaceError(Exception):
    """The root: anything we raise on purpose."""


class ApiError(ClusterspaceError):
    """A refusal that reaches a client as a v1 Status."""

    reason = "Unknown"
    code = 500
    cluster = ""
    """Which cluster refused, when the refusal came from a cluster we asked."""

    def __init__(self, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class BadRequest(ApiError):
    """The request itself makes no sense."""

    reason = "BadRequest"
    code = 400


class Malformed(BadRequest):
    """A text that cannot be read; `place` is where in it, in the reader's terms."""

    what = "input"

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class MalformedSelector(Malformed):
    """A label or field selector that cannot be parsed."""

    what = "selector"


class MalformedPatch(Malformed):
    """A patch that cannot be read or does not fit the object."""

    what = "patch"


class MalformedQuantity(Malformed):
    """A resource quantity that cannot be parsed."""

    what = "quantity"


class MalformedDuration(Malformed):
    """A duration that cannot be parsed."""

    what = "duration"


class MalformedTimestamp(Malformed):
    """A time that cannot be parsed."""

    what = "timestamp"


class MalformedSchema(Malformed):
    """A schema that is not structural."""

    what = "schema"


class MalformedPath(Malformed):
    """A JSONPath that cannot be followed."""

    what = "JSONPath"


class MalformedObject(Malformed):
    """A body that is not the Kubernetes object it claims to be."""

    what = "object"


class Unauthorized(ApiError):
    """We do not know who this is."""

    reason = "Unauthorized"
    code = 401


class AuthorityDropped(Unauthorized):
    """A certificate of an authority that counted when the connection was opened, and no longer."""

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(ApiError):
    """We know who this is, and they may not."""

    reason = "Forbidden"
    code = 403


class QuotaExceeded(Forbidden):
    """A binding would take more than a FederatedResourceQuota leaves; nobody may, whoever asks."""

    reason = "QuotaExceeded"


class NotFound(ApiError):
    """There is no such thing. Never used for "could not look"."""

    reason = "NotFound"
    code = 404


class NotServed(ApiError):
    """The cluster does not have this resource at all, or not now.

    It is no NotFound: whoever takes that for "the object is gone" must not take this for it.
    """

    reason = "NotFound"
    code = 404


class MethodNotAllowed(ApiError):
    """The resource is there but does not do this."""

    reason = "MethodNotAllowed"
    code = 405


class NotAcceptable(ApiError):
    """None of the media types the client accepts can be served."""

    reason = "NotAcceptable"
    code = 406


class AlreadyExists(ApiError):
    """The name is taken."""

    reason = "AlreadyExists"
    code = 409


class Conflict(ApiError):
    """Somebody else changed the object, or owns the field."""

    reason = "Conflict"
    code = 409


class Expired(ApiError):
    """The resourceVersion or continue token is too old: list again."""

    reason = "Expired"
    code = 410

    def __init__(
        self, message: str, details: Details | None = None, *, continue_token: str = ""
    ) -> None:
        super().__init__(message, details)
        self.continue_token = continue_token
        """Where a list may go on all the same, at the present instead of the past."""


class RequestEntityTooLarge(ApiError):
    """The body, or what it would grow into, is over the limit."""

    reason = "RequestEntityTooLarge"
    code = 413


class UnsupportedMediaType(ApiError):
    """The body is of a type we do not read."""

    reason = "UnsupportedMediaType"
    code = 415


class Invalid(ApiError):
    """The object is well-formed but breaks rules; `details.causes` has every one."""

    reason = "Invalid"
    code = 422


class InapplicablePatch(Invalid):
    """A patch that can be read but not carried out on this object.

    Clients are told Kubernetes' one sentence for all of these. `problem` and `place` say what
    really was wrong, for logs and for callers of our own.
    """

    def __init__(self, problem: str, *, place: str = "") -> None:
        super().__init__(
            "the server rejected our request due to an error in our request", Details()
        )
        self.problem = problem
        self.place = place
        self.words = problem
        """What Kubernetes says to those whom it tells what was wrong."""


class PatchTestFailed(InapplicablePatch):
    """A `test` of a JSON patch found another value: whoever wrote it wants nothing changed then."""


class TooManyRequests(ApiError):
    """Try again later; `details.retry_after_seconds` says when."""

    reason = "TooManyRequests"
    code = 429


class UnmergeablePatch(ApiError):
    """A strategic merge patch whose elements cannot be matched with the object's.

    Kubernetes answers 500 without a reason here although the client is at fault, and clients
    have learned to expect that; so the code and the missing reason are those of the base.
    """

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class HttpViolation(ApiError):
    """A message that breaks HTTP or a limit of the connection; the connection ends with it.

    Kubernetes has no names for most of these codes: they are answered before a resource is known.
    """

    reason = "BadRequest"

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = {405: "MethodNotAllowed", 415: "UnsupportedMediaType"}.get(code, self.reason)


class InternalError(ApiError):
    """Our fault."""

    reason = "InternalError"
    code = 500


class BadGateway(ApiError):
    """A cluster answered what must not be passed on, and asking again would not help.

    Kubernetes has no reason for this code: clients take it for an InternalError, as any other 5xx.
    """

    reason = "InternalError"
    code = 502


class ServiceUnavailable(ApiError):
    """Not now: starting, stopping, or a cluster that cannot be reached."""

    reason = "ServiceUnavailable"
    code = 503


class DeadlineExceeded(ApiError):
    """The answer did not come in time."""

    reason = "Timeout"
    code = 504


class ClusterError(ClusterspaceError):
    """A cluster, or the way to it, failed; what is there is unknown, and unknown means keep."""

    def __init__(self, cluster: str, why: str) -> None:
        super().__init__(f"cluster {cluster}: {why}")
        self.cluster = cluster
        self.why = why


class ClusterUnreachable(ClusterError):
    """No connection, or it broke; `was_sent` tells whether the request may have had an effect."""

    def __init__(self, cluster: str, why: str, *, was_sent: bool) -> None:
        super().__init__(cluster, why)
        self.was_sent = was_sent


class ClusterTimeout(ClusterError):
    """The answer did not come in time; the request may have had an effect."""


class ClusterMisbehaved(ClusterError):
    """The answer is none a Kubernetes API gives; `code` is its HTTP status."""

    def __init__(self, cluster: str, why: str, *, code: int = 0) -> None:
        super().__init__(cluster, why)
        self.code = code

    @property
    def is_unfit(self) -> bool:
        """Whether the status itself is none an API server answers with: a redirect, 999."""
        return bool(self.code) and not (200 <= self.code < 300 or 400 <= self.code < 600)


class AnswerOverrun(ClusterMisbehaved):
    """The answer began and did not end within its time or its size: asking again costs as much."""


class NotLeading(ClusterError):
    """A write was not sent, because we lead no longer or cannot make sure of it."""


class CredentialsUnusable(ClusterError):
    """What we are to identify ourselves with is missing, broken or cannot be renewed."""


class CredentialsUnclaimed(CredentialsUnusable):
    """A join that is under way has not said yet whose credentials these are."""


class AddressNotAllowed(ClusterUnreachable):
    """A member leads where no member may be; `address` is for operators, not for the sentence."""

    def __init__(self, cluster: str, why: str, *, address: str) -> None:
        super().__init__(cluster, f"its address is not allowed: {why}", was_sent=False)
        self.address = address


class UnusableKubeconfig(ClusterspaceError):
    """A kubeconfig, or one entry of it, cannot be used; `place` says which."""

    def __init__(self, why: str, *, place: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place


class KubeconfigMissing(UnusableKubeconfig):
    """There is no such file, or not yet."""


class CannotJoin(ClusterspaceError):
    """A cluster may not become a member; `why` says what to do about it."""

    def __init__(self, cluster: str, why: str) -> None:
        super().__init__(f"cluster {cluster} cannot join: {why}")
        self.cluster = cluster
        self.why = why


class CannotLeave(ClusterspaceError):
    """A member cannot be taken out now; `why` says what it waits for."""

    def __init__(self, cluster: str, why: str) -> None:
        super().__init__(f"cluster {cluster} cannot leave: {why}")
        self.cluster = cluster
        self.why = why


class CannotInstall(ClusterspaceError):
    """An API server cannot become the hub; `why` says what stands against it."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"the API server at {server} cannot become the hub: {why}")
        self.why = why


class CannotPromote(ClusterspaceError):
    """An object on a member is not taken over; the message says why, and what would help."""


class UnusableStatement(ClusterspaceError):
    """SQL that is not run, or was ended before its end; the sentence says why and what helps."""


class ScriptFailed(ClusterspaceError):
    """A script of a ResourceInterpreterCustomization did not do what it is for."""


class InterpretationFailed(ClusterspaceError):
    """A script or a webhook that is asked about a kind gave no answer that can be used."""


class CannotProve(ClusterspaceError):
    """What ran on a cluster before and after cannot be compared; `why` says what to do about it."""

    def __init__(self, cluster: str, why: str) -> None:
        super().__init__(f"cluster {cluster}: {why}" if cluster else why)
        self.cluster = cluster
        self.why = why


class CannotMigrate(ClusterspaceError):
    """A plan cannot be made, carried out or taken back; the message names place and cure."""


class BlindWrite(ClusterspaceError):
    """A write carried neither a version, nor an owner of fields, nor the UID it is meant for."""


class MixedCommit(ClusterspaceError):
    """One commit changed both the status and the rest; these are two writes, by two rights."""


class LeadershipLost(ClusterspaceError):
    """The lease is somebody else's, or may be: it could not be renewed in time."""


class Terminal(ClusterspaceError):
    """Raised by a reconciler: trying again cannot help before the object changes."""


class OverrideFailed(ClusterspaceError):
    """An override that cannot be made in this object; the message names the overrider."""


class StaysHome(ClusterspaceError):
    """An object that may not leave the hub, or not by the binding that asks for it; says why."""


class SnapshotAltered(ClusterspaceError):
    """A snapshot that does not say any more what was stored in it; the message names it."""


class StreamBroken(ClusterspaceError):
    """A peer that breaks the stream protocol it upgraded to."""

    def __init__(self, message: str, *, close_code: int = 1002) -> None:
        super().__init__(message)
        self.close_code = close_code
        """What a WebSocket is closed with (RFC 6455, section 7.4.1)."""


class UnknownPlugin(ClusterspaceError):
    """A flag names an admission plug-in that cannot be switched; it says which can."""


class UnknownApi(ClusterspaceError):
    """A flag names an API that cannot be switched on or off; it says which can."""


class CommandRefused(ClusterspaceError):
    """A command of a simulated shell cannot be done; the message is what the shell prints."""


class TaskFailed(ClusterspaceError):
    """A supervised task ended; `__cause__` is what it raised, if it raised anything."""

    def __init__(self, name: str, cause: BaseException | None) -> None:
        why = "ended" if cause is None else f"failed: {cause}"
        super().__init__(f"task {name!r} {why}")
        self.name = name
        self.__cause__ = cause


class ComponentFailed(ClusterspaceError):
    """A component of a local fleet ended before it was ready."""

    def __init__(self, component: str, why: str, log: str) -> None:
        super().__init__(f"{component} did not start: {why} (its log: {log})")
        self.component = component


class SiblingGone(ClusterspaceError):
    """Another worker of the same server does not run, or has ended before it answered."""


class WorkersFailed(ClusterspaceError):
    """Workers of a server cannot be started as they are to be; the sentence says why."""


class PortTaken(ClusterspaceError):
    """Somebody else listens on the port; the sentence says which flag chooses another."""


class AlreadyRunning(ClusterspaceError):
    """A local fleet is run from this directory by another process."""


class UnusableDirectory(ClusterspaceError):
    """A data directory that cannot be used as it is; the message says what to do."""


class UnusableConfiguration(ClusterspaceError):
    """A configuration file that says something that cannot be; the message names the place."""


class StoreError(ClusterspaceError):
    """The revision log could not do what was asked."""


class Compacted(StoreError):
    """The revision asked for has been forgotten."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} has been compacted; the oldest kept is {oldest}")
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """The revision asked for has not happened yet."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} is in the future; the current one is {current}")
        self.asked = asked
        self.current = current


class RevisionMismatch(StoreError):
    """Compare-and-set lost: the key is not at the revision the caller expected."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"{key} is at revision {actual}, not {expected}")
        self.key = key
        self.expected = expected
        self.actual = actual


class GuardChanged(StoreError):
    """The key that a write was tied to is not at its revision any more; nothing was changed."""

    def __init__(self, key: str, guard: str) -> None:
        super().__init__(f"{key} is not written: {guard} has changed")
        self.key = key
        self.guard = guard


class WatcherEvicted(StoreError):
    """A reader fell too far behind and was cut off; it must list again."""


class Unstorable(StoreError):
    """A key or value that no store may hold: too large, or not text."""


class StoreFull(StoreError):
    """The disk has no room for the write; nothing was changed and reads go on."""


class StoreUnavailable(StoreError):
    """Whoever keeps the log does not answer: no quorum, no connection, or no word in time.

    `was_sent` says whether the request may have reached it, and may still be carried out.
    """

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class OutcomeUnknown(StoreError):
    """A write was sent and nobody said what became of it: it may have been carried out."""


class StoreClosed(StoreError):
    """The store was closed before the call could be carried out."""


class StoreCorrupt(StoreError):
    """A record does not match its checksum."""


class CannotOpen(StoreError):
    """Sealed bytes that a key does not open: another key, another place, or damaged."""


class StoreUnreadable(StoreError):
    """The file is not a store, or was written by a newer version."""
