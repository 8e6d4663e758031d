"""When some clusters fail: fail too, or answer with the rest and say who is missing.

What a cluster could not tell is unknown, and unknown is never reported as "not there": clients take
a 404, or a gap in a list, for a deletion.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.errors import (
    ApiError,
    BadGateway,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
    DeadlineExceeded,
    Details,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    NotServed,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.merge.lists import ClusterList, count_copies
from clusterspace.kube import statuses

RETRY_AFTER_SECONDS: Final = 1
"""Clients try again only when they are told after how long."""

INCOMPLETE: Final = "the answer is incomplete"
"""How a Warning begins that names clusters which have no part in an answer."""

_MOST_NAMED: Final = 10
_LONGEST_WHY: Final = 100
"""With these two a Warning stays far below the 4096 characters a server sends at most."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one cluster answered: a whole answer of any status, or the reason why there is none."""

    cluster: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    failure: ApiError | ClusterError | None = None
    listed: ClusterList | None = field(default=None, repr=False)
    """The list that the body is, once it has been taken apart."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cluster that is not asked, or whose answer does not count, and why."""

    cluster: str
    why: str
    error: ApiError | ClusterError | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to make of many replies: the ones to answer with, or the error to answer instead."""

    answered: tuple[Reply, ...] = ()
    warning: str = ""
    """One sentence about all that is missing from the answer; empty when nothing is."""
    error: ApiError | None = None


IsGivenUp: TypeAlias = Callable[[str, ApiError | ClusterError], bool]
"""Whether a cluster that failed like this has failed for so long that nobody waits for it."""


def _nobody_is(_cluster: str, _failure: ApiError | ClusterError) -> bool:
    return False


class _Loss(Enum):
    """Why a cluster has no part in an answer."""

    LACKS = "lacks"
    """It does not have such a thing, and says so."""
    OUT_OF_REACH = "out of reach"
    """The caller may not reach the cluster at all: the hub's decision."""
    REFUSES = "refuses"
    """The caller may reach it, and may not do this there."""
    REJECTS = "rejects"
    """It does not accept the request as it is."""
    UNKNOWN = "unknown"
    """It could not be asked, or could not answer."""


@dataclass(frozen=True, slots=True)
class _Missing:
    cluster: str
    loss: _Loss
    error: ApiError | ClusterError

    @property
    def why(self) -> str:
        said = self.error.why if isinstance(self.error, ClusterError) else self.error.message
        return said if len(said) <= _LONGEST_WHY else f"{said[:_LONGEST_WHY]}..."


def judge(
    replies: Sequence[Reply],
    skipped: Sequence[Skipped] = (),
    *,
    copied: Collection[str] = (),
    recalled: Collection[str] = (),
    is_given_up: IsGivenUp = _nobody_is,
) -> Verdict:
    """Decide about a list or a watch of every cluster.

    Whatever a cluster says, the others are shown, with a Warning about it. A reflector keeps a
    copy and would delete there what is missing here: `copied` are the clusters it may have objects
    of. It is told to come back while one of those fails, until that is given up; but not for
    clusters that refuse: whom a cluster admits does not change from one list to the next.

    `recalled` are clusters whose last state is shown in place of an answer. They are missing all
    the same, and said to be; but an answer that has one of them is an answer.
    """
    answered, missing = _sort_out(replies, skipped)
    losses = [each for each in missing if each.loss in _COUNTED]
    asked = len(answered) + len(losses)
    if too_old := next(filter(statuses.is_about_the_version, _api_errors(missing)), None):
        return Verdict(error=too_old)
    waited_for = [
        each
        for each in losses
        if each.cluster not in recalled and not _is_left_out(each, is_given_up)
    ]
    if not answered and not recalled:
        return _nobody_answers(missing, is_given_up)
    if gap := [
        each for each in waited_for if each.cluster in copied and each.loss is not _Loss.REFUSES
    ]:
        return Verdict(error=_unavailable(_summary(gap, asked)))
    return Verdict(answered, _missing_from(losses, asked))


def judge_page(
    lost: Sequence[Reply], asked: int, *, copied: Collection[str], is_given_up: IsGivenUp
) -> Verdict:
    """Decide about a page that some clusters fail to go on with, of so many that were asked.

    Nobody has no more of a list that it began: that it has none now is as odd as any failure.
    """
    _, missing = _sort_out(lost, ())
    waited_for = [each for each in missing if not is_given_up(each.cluster, each.error)]
    if gap := [each for each in waited_for if each.cluster in copied]:
        return Verdict(error=_unavailable(_summary(gap, asked)))
    return Verdict(warning=_missing_from(missing, asked))


def judge_search(
    replies: Sequence[Reply],
    skipped: Sequence[Skipped] = (),
    *,
    name: str,
    any_will_do: bool = False,
    is_given_up: IsGivenUp = _nobody_is,
) -> Verdict:
    """Decide which cluster's object a name without a cluster means; it is the only one answered.

    `any_will_do` asks no more than whether it is anywhere, and takes the first that has it.
    """
    answered, missing = _sort_out(replies, skipped)
    if not answered:
        return _nobody_answers(missing, is_given_up)
    found = answered[0]
    if any_will_do:
        return Verdict((found,))
    if len(answered) > 1:
        candidates = _enumerated([routes.qualify(name, each.cluster) for each in answered])
        why = f"{name} is in {len(answered)} clusters; say which one: {candidates}"
        return Verdict(error=BadRequest(why))
    losses = [each for each in missing if each.loss in _COUNTED]
    note = _missing_from(losses, len(answered) + len(losses))
    where = f"{name} was found in cluster {found.cluster}: {routes.qualify(name, found.cluster)}"
    return Verdict((found,), f"{where}; {note}" if note else where)


def shown_as_they_were(ages: Mapping[str, str]) -> str:
    """Return what to say of clusters whose last state is shown, each with how old that is."""
    who = _enumerated([f"{cluster} ({age} ago)" for cluster, age in ages.items()])
    return f"objects of clusters that are away are shown as they were: {who}"


def left_alone(
    replies: Sequence[Reply],
    skipped: Sequence[Skipped],
    info: RequestInfo,
    *,
    copies_follow: bool,
) -> list[str]:
    """Return what to say of members' objects that a command without a cluster leaves alone.

    Nothing when there are none. Copies go when their templates on the hub do, so that they count
    only where no template is shown: `copies_follow` says that some are.
    """
    answered, missing = _sort_out(replies, skipped)
    counts: dict[str, int] = {}
    has_more = False
    for each in (reply.listed for reply in answered if reply.listed is not None):
        if count := each.count - (count_copies(each) if copies_follow else 0):
            counts[each.cluster] = count
            has_more |= bool(each.metadata.continue_token)
    losses = [each for each in missing if each.loss in _COUNTED]
    said: list[str] = []
    if counts:
        total = sum(counts.values())
        where = _enumerated([f"{cluster}: {count}" for cluster, count in counts.items()])
        what = f"{info.resource}.{info.group}" if info.group else info.resource
        example = next(iter(counts))
        way = (
            f"-n {routes.qualify(info.namespace, example)}"
            if info.namespace
            else routes.qualify("NAME", example)
        )
        said.append(
            f"without a cluster this command means {what} of the hub; "
            f"{'at least ' if has_more else ''}{total} on members {'is' if total == 1 else 'are'} "
            f"left alone ({where}); to reach a member's, name it: {way}"
        )
    if losses:
        uncounted = _summary(losses, len(answered) + len(losses))
        said.append(f"what is left alone on members could not be counted: {uncounted}")
    return said


def is_lacking(reply: Reply) -> bool:
    """Whether a cluster has said that it has no such thing."""
    failure = _failure_of(reply)
    return failure is not None and _loss_of(failure) is _Loss.LACKS


def failure_of_one(error: ClusterError, *, is_write: bool) -> ApiError:
    """Return the error for a client whose one cluster could not answer.

    Clients send a request again when they are told after how long, whatever it does: kubectl ten
    times. So they are not told so of a write that may have been carried out, nor of a cluster that
    nobody reaches or that stays silent. Whoever waits for that one would rather be told so.
    """
    if isinstance(error, ClusterMisbehaved) and error.is_unfit:
        carried_out = "; the request may have been carried out there" if is_write else ""
        return BadGateway(f"{error}{carried_out}")
    may_have_had_an_effect = (
        error.was_sent
        if isinstance(error, ClusterUnreachable)
        else not isinstance(error, CredentialsUnusable)
    )
    if is_write and may_have_had_an_effect:
        return DeadlineExceeded(f"{error}; the request may have been carried out there")
    if isinstance(error, ClusterTimeout) or (
        isinstance(error, ClusterUnreachable) and not error.was_sent
    ):
        return DeadlineExceeded(str(error))
    return _unavailable(str(error))


def may_recover(error: ApiError | ClusterError | None) -> bool:
    """Whether a cluster that failed like this may soon do what it was asked."""
    return error is not None and _loss_of(error) is _Loss.UNKNOWN


_COUNTED: Final = (_Loss.UNKNOWN, _Loss.REFUSES, _Loss.REJECTS)
"""What is worth a word. That a cluster lacks an API, or is none of the caller's, is no news."""

_HEADINGS: Final = {
    _Loss.UNKNOWN: "unreachable",
    _Loss.REFUSES: "not allowed",
    _Loss.REJECTS: "rejected the request",
    _Loss.LACKS: "no longer have it",
}


def _sort_out(
    replies: Iterable[Reply], skipped: Iterable[Skipped]
) -> tuple[tuple[Reply, ...], list[_Missing]]:
    """Tell those who answered from those who did not, each in the order answers have."""
    ordered = sorted(replies, key=lambda reply: routes.position(reply.cluster))
    failed = [
        _Missing(reply.cluster, _loss_of(error), error)
        for reply in ordered
        if (error := _failure_of(reply)) is not None
    ]
    left_out: list[_Missing] = []
    for each in skipped:
        error = each.error or ClusterError(each.cluster, each.why)
        loss = _Loss.OUT_OF_REACH if isinstance(error, Forbidden) else _loss_of(error)
        left_out.append(_Missing(each.cluster, loss, error))
    missing = sorted([*failed, *left_out], key=lambda each: routes.position(each.cluster))
    return tuple(reply for reply in ordered if _failure_of(reply) is None), missing


def _failure_of(reply: Reply) -> ApiError | ClusterError | None:
    """Return why there is no answer; a status nobody translated is a fault, whatever its code.

    A proxy's page with a 404 must not pass for a cluster that lacks something.
    """
    if reply.failure is not None or 200 <= reply.status < 300:
        return reply.failure
    return ClusterMisbehaved(reply.cluster, f"answered {reply.status}", code=reply.status)


def _loss_of(error: ApiError | ClusterError) -> _Loss:
    match error:
        case NotServed() | NotFound() | MethodNotAllowed():
            return _Loss.LACKS
        case Forbidden():
            return _Loss.REFUSES
        case ClusterError() | TooManyRequests() | Unauthorized():
            # Not to be let in is our own failing: the cluster does not know the gateway.
            return _Loss.UNKNOWN
        case ApiError():
            return _Loss.REJECTS if error.code < 500 else _Loss.UNKNOWN


def _nobody_answers(missing: Sequence[_Missing], is_given_up: IsGivenUp) -> Verdict:
    """Decide for those that are waited for, if there are any; of the others a Warning tells.

    A cluster that fails for good would otherwise make everything unknown that nobody else has.
    """
    waited_for = [each for each in missing if not _is_left_out(each, is_given_up)]
    if not any(each.loss is not _Loss.OUT_OF_REACH for each in waited_for):
        return Verdict(error=_nobody(missing))
    left_out = [each for each in missing if _is_left_out(each, is_given_up)]
    counted = sum(each.loss is not _Loss.OUT_OF_REACH for each in missing)
    return Verdict(error=_nobody(waited_for), warning=_missing_from(left_out, counted))


def _is_left_out(missing: _Missing, is_given_up: IsGivenUp) -> bool:
    is_failure = missing.loss in (_Loss.UNKNOWN, _Loss.REJECTS)
    return is_failure and is_given_up(missing.cluster, missing.error)


def _nobody(missing: Sequence[_Missing]) -> ApiError:
    """Return the error for an answer nobody has a part in.

    A request that is wrong is told first: trying again would not help. Then what is unknown,
    because it could be anything.
    """
    by_loss = {loss: [each for each in missing if each.loss is loss] for loss in _Loss}
    if rejected := list(_api_errors(by_loss[_Loss.REJECTS])):
        return rejected[0]
    if unknown := by_loss[_Loss.UNKNOWN]:
        # Those the caller may not reach are not even counted.
        return _unavailable(_listed(unknown, len(missing) - len(by_loss[_Loss.OUT_OF_REACH])))
    if refused := by_loss[_Loss.REFUSES]:
        first = next(_api_errors(refused))
        if len(refused) == 1:
            return Forbidden(first.message, first.details)
        who = _enumerated([each.cluster for each in refused])
        return Forbidden(f"{first.message} (in each of the clusters {who})", first.details)
    if lacking := list(_api_errors(by_loss[_Loss.LACKS])):
        return next((each for each in lacking if not isinstance(each, NotServed)), lacking[0])
    if by_loss[_Loss.OUT_OF_REACH]:
        return Forbidden("the hub lets you reach no cluster that could answer this", Details())
    return NotServed(statuses.unknown_path().message, Details())


def _unavailable(why: str) -> ServiceUnavailable:
    return ServiceUnavailable(why, Details(retry_after_seconds=RETRY_AFTER_SECONDS))


def _missing_from(losses: Sequence[_Missing], asked: int) -> str:
    """Return one sentence about every loss, or nothing."""
    said = _summary(losses, asked)
    return f"{INCOMPLETE}: {said}" if said else ""


def _summary(losses: Sequence[_Missing], asked: int) -> str:
    by_loss = ((loss, [each for each in losses if each.loss is loss]) for loss in _HEADINGS)
    return "; ".join(_listed(lost, asked) for _, lost in by_loss if lost)


def _listed(lost: Sequence[_Missing], asked: int) -> str:
    who = _enumerated([f"{each.cluster} ({each.why})" for each in lost])
    return f"{len(lost)} of {asked} clusters {_HEADINGS[lost[0].loss]}: {who}"


def _enumerated(items: Sequence[str]) -> str:
    more = len(items) - _MOST_NAMED
    listed = ", ".join(items[:_MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed


def _api_errors(missing: Iterable[_Missing]) -> Iterator[ApiError]:
    return (each.error for each in missing if isinstance(each.error, ApiError))
