"""When some clusters fail: who is told what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import (
    ApiError,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
    DeadlineExceeded,
    Details,
    Expired,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    NotServed,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from clusterspace.fleet.gateway.merge.failures import (
    RETRY_AFTER_SECONDS,
    Reply,
    Skipped,
    Verdict,
    failure_of_one,
    judge,
    judge_page,
    judge_search,
)
from clusterspace.kube import statuses

LACKING = NotServed("the server could not find the requested resource")
REFUSING = Forbidden("pods is forbidden: User cannot list", Details(kind="pods"))
REJECTING = BadRequest("field label not supported: spec.colour")
ABSENT = NotFound('pods "web" not found', Details(name="web", kind="pods"))


def silent(cluster: str) -> ClusterError:
    return ClusterTimeout(cluster, "went silent")


def good(cluster: str) -> Reply:
    return Reply(cluster, status=200, body=b"{}")


def bad(cluster: str, failure: ApiError | ClusterError) -> Reply:
    return Reply(cluster, failure=failure)


def listed(*replies: Reply, skipped: tuple[Skipped, ...] = (), reflector: bool = False) -> Verdict:
    """Judge for a person, or for a reflector that has objects of every cluster."""
    held = [each.cluster for each in (*replies, *skipped)] if reflector else ()
    return judge(replies, skipped, copied=held)


# Lists and watches.


@pytest.mark.parametrize("reflector", [True, False])
def test_a_whole_answer_has_no_warning_and_its_clusters_are_in_order(reflector: bool) -> None:
    verdict = listed(good("m2"), good("karmada"), good("m1"), reflector=reflector)

    assert verdict == Verdict((good("karmada"), good("m1"), good("m2")))


@pytest.mark.parametrize("reflector", [True, False])
@pytest.mark.parametrize("lack", [LACKING, MethodNotAllowed("no lists here"), ABSENT], ids=str)
def test_a_cluster_without_the_api_is_skipped_silently(lack: ApiError, reflector: bool) -> None:
    verdict = listed(good("m1"), bad("m2", lack), reflector=reflector)

    assert verdict == Verdict((good("m1"),))


@pytest.mark.parametrize("reflector", [True, False])
def test_a_cluster_that_refuses_is_named_in_a_warning(reflector: bool) -> None:
    verdict = listed(good("m1"), bad("m2", REFUSING), reflector=reflector)

    assert verdict.answered == (good("m1"),)
    assert verdict.warning == (
        "the answer is incomplete: 1 of 2 clusters not allowed: "
        "m2 (pods is forbidden: User cannot list)"
    )


FAULTS = [
    ClusterTimeout("m2", "went silent"),
    ClusterUnreachable("m2", "refused the connection", was_sent=False),
    ClusterMisbehaved("m2", "answered 200 with text/html"),
    CredentialsUnusable("m2", "its token has expired"),
    Unauthorized("Unauthorized"),
    TooManyRequests("Too many requests"),
    ServiceUnavailable("starting"),
    DeadlineExceeded("Timeout"),
    ApiError("something broke"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_person_sees_the_rest_and_who_is_missing(fault: ApiError | ClusterError) -> None:
    verdict = listed(good("m1"), bad("m2", fault))

    assert (verdict.answered, verdict.error) == ((good("m1"),), None)
    assert "1 of 2 clusters unreachable: m2 (" in verdict.warning


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_reflector_would_delete_what_is_missing_so_it_gets_nothing(
    fault: ApiError | ClusterError,
) -> None:
    verdict = listed(good("m1"), bad("m2", fault), reflector=True)

    assert isinstance(verdict.error, ServiceUnavailable)
    assert verdict.error.details == Details(retry_after_seconds=RETRY_AFTER_SECONDS)
    assert verdict.answered == ()
    assert "m2" in verdict.error.message


def test_a_request_one_cluster_does_not_understand_is_a_warning_or_a_gap() -> None:
    replies = good("m1"), bad("m2", REJECTING)

    assert "rejected the request: m2 (field label" in listed(*replies).warning
    error = listed(*replies, reflector=True).error
    assert isinstance(error, ServiceUnavailable)
    assert "rejected the request: m2" in error.message


def test_a_reflector_is_served_without_those_it_has_nothing_of_or_that_were_given_up() -> None:
    replies = good("m1"), bad("m2", silent("m2")), bad("m3", ApiError("something broke"))

    without_m2 = judge(replies, copied=("m1", "m3"))
    served = judge(replies, copied=("m1", "m2", "m3"), is_given_up=lambda *_: True)

    assert without_m2.error is not None
    assert "m2" not in without_m2.error.message
    assert (served.answered, served.error) == ((good("m1"),), None)
    assert "2 of 3 clusters unreachable: m2 (" in served.warning


def test_a_page_that_one_cluster_cannot_go_on_with_is_a_warning_or_a_gap() -> None:
    lost = [bad("m2", LACKING), bad("m3", ApiError("something broke"))]

    told = judge_page(lost, 4, copied=(), is_given_up=lambda *_: False)
    refused = judge_page(lost, 4, copied=("m2", "m3"), is_given_up=lambda *_: False)

    assert told.error is None
    assert "1 of 4 clusters unreachable: m3 (" in told.warning
    assert "1 of 4 clusters no longer have it: m2 (" in told.warning
    assert isinstance(refused.error, ServiceUnavailable)


@pytest.mark.parametrize("reflector", [True, False])
@pytest.mark.parametrize(
    "error", [Expired("too old"), statuses.version_too_large(9, 5)], ids=lambda each: each.code
)
def test_a_version_one_cluster_cannot_honour_ends_the_whole(
    error: ApiError, reflector: bool
) -> None:
    verdict = listed(good("m1"), bad("m2", error), bad("m3", silent("m3")), reflector=reflector)

    assert verdict.error is error


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([LACKING, LACKING], 404),
        ([LACKING, MethodNotAllowed("no lists here")], 405),
        ([REFUSING, REFUSING], 403),
        ([REFUSING, LACKING], 403),
        ([silent("m1"), silent("m2")], 503),
        ([silent("m1"), LACKING], 503),
        ([REFUSING, silent("m2")], 503),
        ([LACKING, Unauthorized("Unauthorized")], 503),
        ([REJECTING, silent("m2")], 400),
        ([REJECTING, REFUSING], 400),
    ],
)
@pytest.mark.parametrize("reflector", [True, False])
def test_when_nobody_answers_the_code_says_why(
    failures: list[ApiError | ClusterError], code: int, reflector: bool
) -> None:
    replies = [bad(f"m{number}", failure) for number, failure in enumerate(failures, 1)]
    error = listed(*replies, reflector=reflector).error

    assert error is not None
    assert error.code == code


def test_all_who_refuse_are_named() -> None:
    error = listed(bad("m1", REFUSING), bad("m2", REFUSING)).error

    assert isinstance(error, Forbidden)
    assert error.message == f"{REFUSING.message} (in each of the clusters m1, m2)"
    assert error.details == REFUSING.details


def test_a_fleet_without_clusters_serves_nothing() -> None:
    assert isinstance(listed().error, NotServed)


def test_a_page_of_a_proxy_is_not_taken_for_a_cluster_that_lacks_the_api() -> None:
    page = Reply("m2", status=404, body=b"<html>Not Found</html>")

    assert "unreachable: m2 (answered 404)" in listed(good("m1"), page).warning
    assert isinstance(listed(page).error, ServiceUnavailable)


def test_clusters_that_are_none_of_the_callers_are_not_spoken_of() -> None:
    beyond = Skipped("secret", "no right to reach it", Forbidden("clusters/proxy is forbidden"))

    assert listed(good("m1"), skipped=(beyond,), reflector=True) == Verdict((good("m1"),))
    refused = listed(skipped=(beyond, beyond)).error
    assert isinstance(refused, Forbidden)
    assert "secret" not in refused.message
    assert isinstance(listed(bad("m1", LACKING), skipped=(beyond,)).error, NotServed)


def test_clusters_that_are_none_of_the_callers_are_not_counted_either() -> None:
    beyond = [Skipped(f"s{each}", "no", Forbidden("no")) for each in range(3)]

    error = listed(bad("m1", silent("m1")), bad("m2", LACKING), skipped=tuple(beyond)).error

    assert error is not None
    assert error.message == "1 of 2 clusters unreachable: m1 (went silent)"


def test_a_cluster_that_was_not_asked_for_no_known_reason_may_have_anything() -> None:
    verdict = listed(good("m1"), skipped=(Skipped("m2", "failed a moment ago"),))

    assert "1 of 2 clusters unreachable: m2 (failed a moment ago)" in verdict.warning
    reflected = listed(good("m1"), skipped=(Skipped("m2", "why"),), reflector=True)
    assert isinstance(reflected.error, ServiceUnavailable)


def test_there_is_one_warning_however_many_are_missing_and_it_is_short() -> None:
    lost = [bad(f"m{number:02}", ClusterTimeout("m", "w" * 5000)) for number in range(40)]
    refused = [bad(f"r{number:02}", Forbidden("f" * 5000)) for number in range(40)]
    warning = listed(good("a"), *lost, *refused).warning

    assert "40 of 81 clusters unreachable: m00 (" in warning
    assert "40 of 81 clusters not allowed: r00 (" in warning
    assert warning.count(" and 30 more") == 2
    assert len(warning) < 4096


failures = st.sampled_from([LACKING, REFUSING, REJECTING, ABSENT, *FAULTS])
replies = st.lists(st.none() | failures, max_size=8).map(
    lambda drawn: [
        good(f"m{number}") if failure is None else bad(f"m{number}", failure)
        for number, failure in enumerate(drawn)
    ]
)


@given(replies, st.booleans())
def test_what_is_unknown_is_never_told_as_absent(drawn: list[Reply], reflector: bool) -> None:
    verdict = listed(*drawn, reflector=reflector)
    unknown = [each.cluster for each in drawn if any(each.failure is fault for fault in FAULTS)]

    if unknown and verdict.error is not None:
        assert verdict.error.code not in (404, 405)
    if unknown and verdict.error is None:
        assert not reflector
        assert all(f"{cluster} (" in verdict.warning for cluster in unknown)


@pytest.mark.parametrize("fault", [*FAULTS, REJECTING], ids=str)
def test_a_cluster_that_fails_for_good_makes_nothing_unknown_that_nobody_else_has(
    fault: ApiError | ClusterError,
) -> None:
    replies = bad("m1", LACKING), bad("m2", fault)

    given_up = judge(replies, is_given_up=lambda cluster, _: cluster == "m2")
    searched = judge_search(
        [bad("m1", ABSENT), bad("m2", fault)], name="web", is_given_up=lambda *_: True
    )
    alone = judge([bad("m2", fault)], is_given_up=lambda *_: True)

    assert given_up.error is LACKING
    assert "1 of 2 clusters" in given_up.warning
    assert "m2 (" in given_up.warning
    assert searched.error is ABSENT
    assert alone.error is not None
    assert alone.error.code != 404


# A name without a cluster.


def test_a_name_that_one_cluster_has_is_answered_and_the_cluster_named() -> None:
    verdict = judge_search([good("m1"), bad("m2", ABSENT), bad("m3", LACKING)], name="web")

    assert verdict == Verdict((good("m1"),), "web was found in cluster m1: web.clusterspace.m1")


def test_a_name_that_several_clusters_have_is_refused_and_the_full_names_told() -> None:
    verdict = judge_search([good("m2"), good("m1"), bad("m3", ABSENT)], name="web")

    assert isinstance(verdict.error, BadRequest)
    assert verdict.error.message == (
        "web is in 2 clusters; say which one: web.clusterspace.m1, web.clusterspace.m2"
    )


def test_a_find_tells_who_could_not_be_asked() -> None:
    verdict = judge_search([good("m1"), bad("m2", silent("m2"))], name="web")

    assert verdict.answered == (good("m1"),)
    assert "1 of 2 clusters unreachable: m2 (went silent)" in verdict.warning


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([ABSENT, ABSENT], 404),
        ([ABSENT, LACKING], 404),
        ([LACKING, LACKING], 404),
        ([ABSENT, silent("m2")], 503),
        ([ABSENT, REFUSING], 403),
    ],
)
@pytest.mark.parametrize("any_will_do", [True, False])
def test_a_name_is_not_there_only_when_everyone_looked(
    failures: list[ApiError | ClusterError], code: int, any_will_do: bool
) -> None:
    replies = [bad(f"m{number}", failure) for number, failure in enumerate(failures, 1)]
    error = judge_search(replies, name="web", any_will_do=any_will_do).error

    assert error is not None
    assert error.code == code


def test_nobody_having_the_object_is_told_in_the_words_of_a_cluster() -> None:
    verdict = judge_search([bad("m1", LACKING), bad("m2", ABSENT)], name="web")

    assert verdict.error is ABSENT


def test_when_any_will_do_the_hub_is_taken_first() -> None:
    replies = [good("m1"), good("karmada"), bad("m2", silent("m2"))]

    assert judge_search(replies, name="ns", any_will_do=True) == Verdict((good("karmada"),))


# One cluster.


@pytest.mark.parametrize("is_write", [True, False])
def test_a_cluster_whose_credentials_are_replaced_can_be_asked_again(is_write: bool) -> None:
    error = failure_of_one(CredentialsUnusable("m1", "no token"), is_write=is_write)

    assert isinstance(error, ServiceUnavailable)
    assert error.details == Details(retry_after_seconds=RETRY_AFTER_SECONDS)
    assert "m1" in error.message


@pytest.mark.parametrize("is_write", [True, False])
def test_a_cluster_that_nobody_reaches_is_not_asked_ten_times(is_write: bool) -> None:
    fault = ClusterUnreachable("m1", "refused", was_sent=False)

    error = failure_of_one(fault, is_write=is_write)

    assert isinstance(error, DeadlineExceeded)
    assert error.details is None
    assert error.message == "cluster m1: refused"


def test_a_cluster_that_stays_silent_is_not_asked_ten_times() -> None:
    error = failure_of_one(ClusterTimeout("m1", "went silent"), is_write=False)

    assert (type(error), error.details) == (DeadlineExceeded, None)


@pytest.mark.parametrize(
    "fault",
    [
        ClusterTimeout("m1", "went silent"),
        ClusterUnreachable("m1", "the connection broke", was_sent=True),
        ClusterMisbehaved("m1", "answered 502 with text/html"),
    ],
    ids=str,
)
def test_a_write_that_may_have_happened_is_not_sent_again(fault: ClusterError) -> None:
    error = failure_of_one(fault, is_write=True)

    assert isinstance(error, DeadlineExceeded)
    assert error.details is None
    is_silent = isinstance(fault, ClusterTimeout)
    of_read = DeadlineExceeded if is_silent else ServiceUnavailable
    assert isinstance(failure_of_one(fault, is_write=False), of_read)
