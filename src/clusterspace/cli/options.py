"""The sets of options that commands share, each handed to its command as one value.

@hub_options        hub: HubOptions          where the hub is
@member_options()   member: MemberOptions    where a member is, for its administrator
@location_options   location: Location       where a new member is, for placement
@server_options     server: ServerOptions    what the API servers `hub` and `fleet` are given alike
@request_options()  requests: RequestLimits  how many requests they work on at once
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

if TYPE_CHECKING:
    from clusterspace.apiserver.http.audit_policy import Policy
    from clusterspace.apiserver.http.connections import Limits
    from clusterspace.apiserver.http.users import MemberIdentities
    from clusterspace.client.settings import ConnectionSettings

Command: TypeAlias = Callable[..., None]
Option: TypeAlias = Callable[[Command], Command]
Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


def _with(options: Sequence[Option], command: Command) -> Command:
    """Give a command options that are shown in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class _Port(click.IntRange):
    """A TCP port, or 0 for a free one."""

    name = "port"


LAST_PORT: Final = 65535
PORT: Final = _Port(0, LAST_PORT)


class _Cidr(click.ParamType[IPv4Network | IPv6Network]):
    """A range of addresses, such as 127.0.0.0/8."""

    name = "CIDR"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> IPv4Network | IPv6Network:
        """Return the range; click's own error names the flag and what is wrong."""
        if isinstance(value, IPv4Network | IPv6Network):
            return value
        try:
            return ip_network(str(value))
        except ValueError as error:
            self.fail(f"{error}; a range is written like 127.0.0.0/8 or fd00::/8", param, ctx)


member_cidrs_option: Final = click.option(
    "--allow-member-cidrs",
    "member_cidrs",
    type=_Cidr(),
    multiple=True,
    metavar="CIDR",
    help="Range that members may be reached in although it is loopback, link-local, a metadata "
    "service's or the hub's own; may be given several times.",
)
webhook_cidrs_option: Final = click.option(
    "--allow-webhook-cidrs",
    "webhook_cidrs",
    type=_Cidr(),
    multiple=True,
    metavar="CIDR",
    help="Range that webhooks which interpret may be reached in by the agent although it is "
    "loopback, link-local or a metadata service's; may be given several times.",
)
DELETION_BUDGET: Final = "10/20%"
_BUDGET: Final = re.compile(r"off|\d{1,9}(/\d{1,3}%)?")


def _checked_budget(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if _BUDGET.fullmatch(value) is None:
        why = f"{value!r} is no budget: OBJECTS/PERCENT% such as 10/20%, OBJECTS alone, or off"
        raise click.BadParameter(why)
    return value


deletion_budget_option: Final = click.option(
    "--deletion-budget",
    default=DELETION_BUDGET,
    show_default=True,
    metavar="OBJECTS/PERCENT%",
    callback=_checked_budget,
    help="How many objects may be deleted on a member within ten minutes though nobody deleted "
    "their templates: more than so many, and than such a share of what is there, wait for "
    "`clusterspace resume`. `off` never waits.",
)
unschedulable_option: Final = click.option(
    "--unschedulable-threshold",
    "unschedulable_seconds",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="Seconds after which replicas that find no node on their cluster go to another, if they "
    "are divided by room; 0: never.",
)
allow_view_option: Final = click.option(
    "--allow-view",
    "allows_view",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Let users of the fleet reach the cluster through its agent, with the rights that the "
    "cluster itself gives them.",
)
hub_kubeconfig_option: Final = click.option(
    "--hub-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the hub wrote for this part.  [default: KUBECONFIG, else the local hub's]",
)
token_auth_file_option: Final = click.option(
    "--token-auth-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help='Static tokens, one line each: token,user,uid,"group1,group2".',
)
local_data_dir_option: Final = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".clusterspace"),
    show_default=True,
    help="Where everything of this fleet is kept.",
)
log_format_option: Final = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="For people or for machines.",
)


# -- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Where the hub is, for a command that talks to it."""

    kubeconfig: Path | None
    context: str

    def settings(self) -> "ConnectionSettings":
        """Return how to reach the hub; UnusableKubeconfig when that is not known."""
        from clusterspace.roots.clients import hub_settings

        return hub_settings(self.kubeconfig, self.context)


def hub_options(command: Command) -> Command:
    """Add the options that say where the hub is; the command gets them as one `hub`."""

    @functools.wraps(command)
    def with_hub(*, kubeconfig: Path | None, context: str, **others: Any) -> None:
        command(**others, hub=HubOptions(kubeconfig, context))

    options = (
        click.option(
            "--kubeconfig",
            "kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Kubeconfig of the hub.  [default: KUBECONFIG, else .clusterspace/kubeconfig]",
        ),
        click.option("--context", "context", default="", help="Context in the hub's kubeconfig."),
    )
    return _with(options, with_hub)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Where a member is, for a command that talks to it as its administrator."""

    kubeconfig: Path | None
    context: str

    def settings(self, name: str) -> "ConnectionSettings | None":
        """Return how to reach the member; None when no kubeconfig of it was given."""
        return None if self.kubeconfig is None else self.required_settings(name)

    def required_settings(self, name: str) -> "ConnectionSettings":
        """Return how to reach the member, for a command that requires its kubeconfig."""
        from clusterspace.roots.clients import member_settings

        if self.kubeconfig is None:
            raise click.UsageError("--cluster-kubeconfig is needed.")
        return member_settings(name, self.kubeconfig, self.context)


def member_options(
    kubeconfig_help: str = "Kubeconfig of an administrator of the cluster.",
    *,
    required: bool = False,
) -> Option:
    """Add the options that say where a member is; the command gets them as one `member`."""
    options = (
        click.option(
            "--cluster-kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            required=required,
            help=kubeconfig_help,
        ),
        click.option("--cluster-context", default="", help="Context in that kubeconfig."),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_member(
            *arguments: Any, cluster_kubeconfig: Path | None, cluster_context: str, **others: Any
        ) -> None:
            command(*arguments, **others, member=MemberOptions(cluster_kubeconfig, cluster_context))

        return _with(options, with_member)

    return decorate


def location_options(command: Command) -> Command:
    """Add the options that say where a new member is; the command gets them as one `location`."""

    @functools.wraps(command)
    def with_location(
        *arguments: Any,
        cluster_provider: str,
        cluster_region: str,
        cluster_zones: str,
        **others: Any,
    ) -> None:
        from clusterspace.fleet.membership.manifests import Location

        zones = tuple(each.strip() for each in cluster_zones.split(",") if each.strip())
        location = Location(cluster_provider, cluster_region, zones)
        command(*arguments, **others, location=location)

    options = (
        click.option("--cluster-provider", default="", help="Who runs the cluster, for placement."),
        click.option("--cluster-region", default="", help="Region of the cluster, for placement."),
        click.option(
            "--cluster-zones", default="", help="Zones of the cluster, separated by commas."
        ),
    )
    return _with(options, with_location)


# -- servers ---------------------------------------------------------------------------------------


def listen_options(*, port: int, data_dir: Path | None, kept: str) -> Option:
    """Add `--data-dir`, which is required without a default, `--host` and `--port`."""
    directory = click.Path(file_okay=False, path_type=Path)
    options = (
        click.option("--data-dir", type=directory, required=True, help=kept)
        if data_dir is None
        else click.option(
            "--data-dir", type=directory, default=data_dir, show_default=True, help=kept
        ),
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
        ),
        click.option(
            "--port",
            default=port,
            show_default=True,
            type=PORT,
            help="Port to listen on; 0: a free one.",
        ),
    )
    return functools.partial(_with, options)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the API servers, `hub` and `fleet`, are given alike."""

    identities: "MemberIdentities"
    """Who users are at members."""
    server_names: tuple[str, ...]
    endpoint: str
    shutdown_delay: float
    member_cidrs: Networks
    connections: "Limits"
    audit: "Policy"
    audit_log: "dict[str, Any]"
    """Settings of the audit log by their names: policy, place and rotation."""


def _read_endpoint(_context: click.Context, _option: click.Parameter, given: str) -> str:
    """Read HOST:PORT; port 443 is what may be left out."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?", given)
    if given and found is None:
        raise click.BadParameter(f"{given!r} is not HOST:PORT")
    return f"{given}:443" if found is not None and not found[2] else given


_SERVER_OPTIONS: Final = (
    click.option(
        "--impersonate-masters/--no-impersonate-masters",
        default=False,
        show_default=True,
        help="Let the hub's system:masters be system:masters on every member too.",
    ),
    click.option(
        "--plain-service-accounts",
        multiple=True,
        metavar="MEMBER",
        help="Member at which a hub ServiceAccount is the ServiceAccount of the same name, as in"
        " Karmada; may be given several times.",
    ),
    click.option(
        "--tls-san",
        "server_names",
        multiple=True,
        metavar="NAME",
        help="Name or address that clients use too; may be given several times.",
    ),
    click.option(
        "--control-plane-endpoint",
        "endpoint",
        default="",
        metavar="HOST:PORT",
        callback=_read_endpoint,
        help="Where clients reach all replicas of this server: what kubeconfigs say, and a name of"
        " the certificate.",
    ),
    click.option(
        "--shutdown-delay-duration",
        "shutdown_delay",
        default=0.0,
        show_default=True,
        type=click.FloatRange(min=0, max=300),
        help="Seconds for which, told to stop, it serves on without being ready, so that a load"
        " balancer and its clients go elsewhere.",
    ),
    member_cidrs_option,
    click.option(
        "--max-connections",
        default=10_000,
        show_default=True,
        type=click.IntRange(min=10),
        help="Open connections in all; beyond, new ones are closed as they come.",
    ),
    click.option(
        "--max-connections-per-address",
        default=5_000,
        show_default=True,
        type=click.IntRange(min=1),
        help="Of these, from one address (IPv6: a /64); behind a proxy that is everybody.",
    ),
    click.option(
        "--max-unauthenticated",
        default=500,
        show_default=True,
        type=click.IntRange(min=10),
        help="Connections served at once that have shown no credentials yet; others wait.",
    ),
    click.option(
        "--max-unauthenticated-per-address",
        default=100,
        show_default=True,
        type=click.IntRange(min=1),
        help="Of these, from one address.",
    ),
    click.option(
        "--audit-policy-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="kube-apiserver's audit policy (audit.k8s.io/v1), whose rules alone count then; the"
        " default is what `clusterspace audit policy` prints.",
    ),
    click.option(
        "--audit-log-path",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File of the audit log; without it, audit.log in the data directory.",
    ),
    click.option(
        "--audit-log-key-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Keys, one a line, without which nobody can write the audit log anew; the first is"
        " used, others are for `audit verify`.",
    ),
    click.option(
        "--audit-log-maxsize",
        default=100,
        show_default=True,
        type=click.IntRange(min=0),
        help="Megabytes at which the audit log is turned over; 0: never.",
    ),
    click.option(
        "--audit-log-maxbackup",
        default=10,
        show_default=True,
        type=click.IntRange(min=0),
        help="How many older files are kept; 0: all.",
    ),
    click.option(
        "--audit-log-maxage",
        default=0,
        show_default=True,
        type=click.IntRange(min=0),
        help="Days for which older files are kept; 0: however old they are.",
    ),
    click.option(
        "--audit-reads",
        "audited_reads",
        multiple=True,
        metavar="RESOURCE[.GROUP]",
        default=("secrets",),
        show_default=True,
        help="Reads of these are audited by the default policy; may be given several times.",
    ),
    click.option(
        "--audit-renewals/--no-audit-renewals",
        default=False,
        show_default=True,
        help="The default policy audits renewed leases too: 70 MB a day of an idle fleet.",
    ),
    log_format_option,
)


def server_options(command: Command) -> Command:
    """Add the options of every API server; the command gets them as one `server`.

    How it logs is not among them: the command gets `log_format` beside it.
    """

    @functools.wraps(command)
    def with_server(
        *,
        impersonate_masters: bool,
        plain_service_accounts: tuple[str, ...],
        server_names: tuple[str, ...],
        endpoint: str,
        shutdown_delay: float,
        member_cidrs: Networks,
        max_connections: int,
        max_connections_per_address: int,
        max_unauthenticated: int,
        max_unauthenticated_per_address: int,
        audited_reads: tuple[str, ...],
        audit_renewals: bool,
        audit_policy_file: Path | None,
        audit_log_path: Path | None,
        audit_log_key_file: Path | None,
        audit_log_maxsize: int,
        audit_log_maxbackup: int,
        audit_log_maxage: int,
        **others: Any,
    ) -> None:
        from clusterspace.apiserver.http.audit_policy import default_policy
        from clusterspace.apiserver.http.connections import Limits
        from clusterspace.apiserver.http.users import MemberIdentities, read_members
        from clusterspace.roots.settings import rotation_of

        server = ServerOptions(
            identities=MemberIdentities(impersonate_masters, read_members(plain_service_accounts)),
            server_names=server_names,
            endpoint=endpoint,
            shutdown_delay=shutdown_delay,
            member_cidrs=member_cidrs,
            connections=Limits(
                connections=max_connections,
                connections_per_address=max_connections_per_address,
                newcomers=max_unauthenticated,
                newcomers_per_address=max_unauthenticated_per_address,
            ),
            audit=default_policy(frozenset(audited_reads), renewals=audit_renewals),
            audit_log={
                "audit_policy_file": audit_policy_file,
                "audit_log_path": audit_log_path,
                "audit_key_file": audit_log_key_file,
                "audit_rotation": rotation_of(
                    audit_log_maxsize, audit_log_maxbackup, audit_log_maxage
                ),
            },
        )
        command(**others, server=server)

    return _with(_SERVER_OPTIONS, with_server)


def request_options(*, reads: int, writes: int) -> Option:
    """Add how many requests are worked on at once; the command gets it as one `requests`."""
    options = (
        click.option(
            "--max-requests-inflight",
            default=reads,
            show_default=True,
            type=click.IntRange(min=1),
            help="Reads worked on at once; with the writes, the seats of all priority levels.",
        ),
        click.option(
            "--max-mutating-requests-inflight",
            default=writes,
            show_default=True,
            type=click.IntRange(min=1),
            help="Writes worked on at once.",
        ),
        click.option(
            "--enable-priority-and-fairness",
            type=click.BOOL,
            default=True,
            show_default=True,
            help="Let FlowSchemas say whose requests are served next; else the two bounds do.",
        ),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_requests(
            *,
            max_requests_inflight: int,
            max_mutating_requests_inflight: int,
            enable_priority_and_fairness: bool,
            **others: Any,
        ) -> None:
            from clusterspace.roots.settings import RequestLimits

            limits = RequestLimits(
                max_requests_inflight, max_mutating_requests_inflight, enable_priority_and_fairness
            )
            command(**others, requests=limits)

        return _with(options, with_requests)

    return decorate


def sign_on_options(command: Command) -> Command:
    """Add the issuer that people log in at on the page; the command gets it as one `sign_on`."""
    options = (
        click.option(
            "--ui-oidc-issuer-url",
            "issuer",
            default="",
            help="Where people log in on the page: an OpenID Connect issuer that the hub trusts.",
        ),
        click.option(
            "--ui-oidc-client-id",
            "client_id",
            default="",
            help="What the issuer knows the page by; an audience of the hub's configuration.",
        ),
        click.option(
            "--ui-oidc-client-secret-file",
            "client_secret_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Has the client's secret, read with every login; a public client has none.",
        ),
        click.option(
            "--ui-oidc-ca-file",
            "authority",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Whom to trust for the issuer's certificate.  [default: whom the system trusts]",
        ),
        click.option(
            "--ui-oidc-scope",
            "scopes",
            multiple=True,
            default=("openid", "profile", "email"),
            show_default=True,
            help="What the issuer is asked to tell; may be given several times.",
        ),
    )

    @functools.wraps(command)
    def with_sign_on(
        *,
        issuer: str,
        client_id: str,
        client_secret_file: Path | None,
        authority: Path | None,
        scopes: tuple[str, ...],
        **others: Any,
    ) -> None:
        from clusterspace.fleet.page.sign_on import SignOnSettings

        if bool(issuer) != bool(client_id):
            raise click.UsageError(
                "--ui-oidc-issuer-url and --ui-oidc-client-id go together: give both or neither"
            )
        if (client_secret_file or authority) and not issuer:
            raise click.UsageError("the issuer is missing: give --ui-oidc-issuer-url")
        if issuer and not issuer.startswith("https://"):
            raise click.UsageError(f"--ui-oidc-issuer-url: {issuer!r} is no https address")
        if "openid" not in scopes:
            raise click.UsageError("--ui-oidc-scope: `openid` has to be one of them")
        sign_on = SignOnSettings(
            issuer,
            client_id,
            client_secret_file,
            scopes,
            b"" if authority is None else authority.read_bytes(),
        )
        command(**others, sign_on=sign_on if issuer else None)

    return _with(options, with_sign_on)
