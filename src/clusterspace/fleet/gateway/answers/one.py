"""One cluster, named by the request: asked as if it were alone, answered in the client's words."""

from clusterspace.apiserver.http.foreign_answers import clean_table
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import YAML
from clusterspace.apiserver.http.relays import UNKNOWN_THERE, relay
from clusterspace.apiserver.http.request_info import Query, read_request
from clusterspace.apiserver.http.responses import as_yaml
from clusterspace.apiserver.http.tunnels import tunnel
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ApiError, ClusterError, CredentialsUnusable, NotServed, Unauthorized
from clusterspace.fleet.gateway import fanout, respond
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.follow_ups import note_found
from clusterspace.fleet.gateway.answers.watches import relay_events
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import HUB, Naming, Reply, Subject
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.renaming import inbound, outbound
from clusterspace.fleet.gateway.renaming.rules import NOT_OBJECTS


async def answer_one(asking: Asking, naming: Naming) -> Response | None:
    """Answer with what one cluster answers."""
    asking.context.cluster = naming.cluster
    try:
        link = await asking.link(naming.cluster)
        # A long answer ends when its caller may no longer reach the cluster.
        asking.context.guards.append(lambda: asking.link(naming.cluster))
        return await _answer(asking, naming, link)
    except ClusterError as error:
        if naming.cluster != HUB:
            asking.fleet.directory.troubles.note_single(naming.cluster, error)
        is_write = asking.route.info.is_write
        raise failures.failure_of_one(error, is_write=is_write) from error


async def _answer(asking: Asking, naming: Naming, link: Link) -> Response | None:
    call, info = asking.context, asking.route.info
    query = await _query_for(asking, naming)
    passage = asking.passage(link, query)
    if call.request.is_upgrade:
        path, _, inner_query = passage.target.partition("?")
        return await tunnel(call, passage, read_request(info.method, path, inner_query))
    if asking.route.is_relayed or info.subresource in NOT_OBJECTS:
        return await relay(call, passage)
    if info.method in ("GET", "HEAD") and naming.is_plain:
        return await relay(call, passage)
    if info.is_watch:
        return await relay_events(asking, link, naming, query)
    return await _exchange(asking, naming, link, query)


async def _query_for(asking: Asking, naming: Naming) -> Query:
    query = asking.route.info.query
    if asking.route.is_relayed:
        return query
    said = query.get("resourceVersion").encode()
    version_for = await asking.version_for(naming.cluster, said)
    return inbound.rewrite_query(query, naming, version_for=version_for)


async def _exchange(asking: Asking, naming: Naming, link: Link, query: Query) -> Response:
    """Ask for the whole answer, and put it into the client's words."""
    call, subject = asking.context, Subject.of(asking.route.info)
    sent, content_type = await call.read_body(), call.header("content-type")
    version_for = await asking.version_for(naming.cluster, sent)
    body = await call.run(
        lambda: inbound.rewrite(sent, content_type, naming, subject, version_for=version_for)
    )
    seconds = asking.fleet.limits.request_seconds

    def make_ask(link: Link) -> ApiRequest:
        return asking.ask(link, query, body=body, seconds=seconds)

    reply = await fanout.ask_one(link, make_ask)
    if not isinstance(reply.failure, ClusterError):
        asking.note(reply)
    _refuse_failure(reply)
    note_found(asking, reply)
    call.weigh(reply.body)

    def respond_renamed() -> Response:
        rewritten = outbound.rewrite(reply.body, naming, subject)
        if asking.representation.is_table and not link.is_hub and reply.status < 400:
            rewritten = clean_table(link.cluster, rewritten)
        return respond.send_one(call, reply, rewritten, link.speaker)

    response = await call.run(respond_renamed)
    is_yaml = asking.representation.media_type == YAML and bool(response.body)
    return await as_yaml(call, response) if is_yaml else response


def _refuse_failure(reply: Reply) -> None:
    """Raise what is no answer of the cluster's; a refusal in good form may pass."""
    if isinstance(reply.failure, Unauthorized):
        raise CredentialsUnusable(reply.cluster, UNKNOWN_THERE)
    if isinstance(reply.failure, NotServed) and not reply.failure.details:
        raise reply.failure  # a plain sentence, as servers say of groups they do not have
    is_answer = bool(reply.status) and isinstance(reply.failure, ApiError)
    if reply.failure is not None and not is_answer:
        raise reply.failure
