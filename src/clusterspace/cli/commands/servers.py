"""`clusterspace hub`, `fleet` and `sim`: run an API server in the foreground until Ctrl-C."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.options import (
    LAST_PORT,
    ServerOptions,
    hub_kubeconfig_option,
    listen_options,
    log_format_option,
    request_options,
    server_options,
    sign_on_options,
    token_auth_file_option,
)
from clusterspace.cli.running import serve

if TYPE_CHECKING:
    from clusterspace.client.settings import ConnectionSettings
    from clusterspace.fleet.page.sign_on import SignOnSettings
    from clusterspace.roots.settings import RequestLimits


@click.command()
@listen_options(
    port=5443,
    data_dir=Path(".clusterspace"),
    kept="Where certificates, the kubeconfig and the objects are kept.",
)
@click.option(
    "--store",
    type=click.Choice(["sqlite", "memory"]),
    default="sqlite",
    show_default=True,
    help="Keep objects on disk, or only as long as the process lives.",
)
@click.option(
    "--etcd-servers",
    default="",
    metavar="URLS",
    help="Keep objects in this etcd (or kine), with commas; any number of hubs may share it.",
)
@click.option(
    "--etcd-prefix",
    default="/registry",
    show_default=True,
    metavar="PATH",
    help="Where in etcd; hubs of one fleet have the same.",
)
@click.option(
    "--etcd-cafile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Whose certificates etcd has to show.",
)
@click.option(
    "--etcd-certfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The certificate this hub shows to etcd.",
)
@click.option(
    "--etcd-keyfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The key of that certificate.",
)
@click.option(
    "--etcd-unsafe-version",
    is_flag=True,
    help="Put up with an etcd older than 3.5.13, which may lose what it acknowledged.",
)
@token_auth_file_option
@click.option(
    "--enable-admission-plugins",
    default="",
    metavar="NAMES",
    help="Admission plug-ins by kube-apiserver's names, with commas; all there are here are on.",
)
@click.option(
    "--disable-admission-plugins",
    default="",
    metavar="NAMES",
    help="Admission plug-ins that are not asked; rules that protect the fleet always are.",
)
@click.option(
    "--authentication-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An AuthenticationConfiguration: whose OIDC tokens count, and for whom. It is followed.",
)
@click.option(
    "--encryption-provider-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An EncryptionConfiguration: what is stored encrypted, with which keys. It is followed.",
)
@click.option(
    "--runtime-config",
    default="",
    metavar="GROUP/VERSION=true",
    help="APIs that are served only on demand: admissionregistration.k8s.io/v1beta1 "
    "(MutatingAdmissionPolicy).",
)
@click.option(
    "--accept-karmada-agents/--no-accept-karmada-agents",
    default=False,
    show_default=True,
    help="Let Karmada's own karmadactl register and karmada-agent join clusters; what that weakens"
    " is in docs/guides/security-model.md.",
)
@request_options(reads=400, writes=200)
@server_options
def hub(
    *,
    data_dir: Path,
    host: str,
    port: int,
    store: str,
    etcd_servers: str,
    etcd_prefix: str,
    etcd_cafile: Path | None,
    etcd_certfile: Path | None,
    etcd_keyfile: Path | None,
    etcd_unsafe_version: bool,
    token_auth_file: Path | None,
    enable_admission_plugins: str,
    disable_admission_plugins: str,
    authentication_config: Path | None,
    encryption_provider_config: Path | None,
    runtime_config: str,
    accept_karmada_agents: bool,
    requests: "RequestLimits",
    server: ServerOptions,
    log_format: str,
) -> None:
    """Run the hub: a Kubernetes API server for the control plane.

    The administrator's kubeconfig is written to the data directory once the hub is ready, and those
    that `fleet` and `controllers` work with below it, in parts/.

    \b
    Examples:
      clusterspace hub
      clusterspace hub --data-dir /var/lib/clusterspace --log-format json
      clusterspace hub --host 0.0.0.0 --tls-san hub.example.com
      clusterspace hub --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379
      kubectl --kubeconfig .clusterspace/kubeconfig get namespaces
    """
    from clusterspace.roots.hub import serve_until_stopped
    from clusterspace.roots.settings import (
        AdmissionSwitches,
        EtcdSettings,
        HubSettings,
        read_optional_apis,
    )

    def names(text: str) -> tuple[str, ...]:
        return tuple(each.strip() for each in text.split(",") if each.strip())

    etcd = None
    if etcd_servers:
        etcd = EtcdSettings(
            names(etcd_servers),
            etcd_prefix,
            etcd_cafile,
            etcd_certfile,
            etcd_keyfile,
            etcd_unsafe_version,
        )
    settings = HubSettings(
        data_dir,
        store,
        token_auth_file,
        AdmissionSwitches(names(enable_admission_plugins), names(disable_admission_plugins)),
        authentication_config,
        encryption_provider_config,
        etcd,
        read_optional_apis(names(runtime_config)),
        accept_karmada_agents,
        host=host,
        port=port,
        server_names=server.server_names,
        endpoint=server.endpoint,
        shutdown_delay=server.shutdown_delay,
        member_cidrs=server.member_cidrs,
        connections=server.connections,
        audit=server.audit,
        **server.audit_log,
        identities=server.identities,
        requests=requests,
    )
    serve(lambda: serve_until_stopped(settings), log_format, port=port)


def _checked_url(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from clusterspace.client.endpoints import endpoint_problem

    problem = endpoint_problem(value) if value else ""
    if problem:
        raise click.BadParameter(problem, context, parameter)
    return value


@click.command()
@hub_kubeconfig_option
@listen_options(
    port=7443,
    data_dir=Path(".clusterspace") / "fleet",
    kept="Where certificates, the kubeconfig, the audit log and cached objects are kept.",
)
@click.option(
    "--federation",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Show the hub's own objects too; a name without a cluster is then the hub's.",
)
@click.option(
    "--bulk-delete-members",
    type=click.BOOL,
    default=False,
    show_default=True,
    help="Let `kubectl delete --all|-l` and `apply --prune` reach members without naming them.",
)
@click.option(
    "--list-timeout",
    "list_seconds",
    default=8.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=30),
    help="Seconds each cluster has for its part of a list.",
)
@click.option(
    "--answer-mib",
    default=128,
    show_default=True,
    type=click.IntRange(min=1),
    help="MiB that one cluster's answer may have; a larger one is left out with a warning.",
)
@click.option(
    "--answers-mib",
    default=512,
    show_default=True,
    type=click.IntRange(min=1),
    help="MiB that all answers worked on at one time may have; the largest is left out first.",
)
@click.option(
    "--cache-mib",
    default=256,
    show_default=True,
    type=click.IntRange(min=0),
    help="MiB of members' objects kept for the next list of them, and a quarter of that for "
    "members that are away; 0 keeps none.",
)
@click.option(
    "--cache-on-disk",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Keep those objects in files of the data directory, too, for the next start; neither "
    "Secrets nor ConfigMaps.",
)
@click.option(
    "--any-state",
    "any_state_seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0, max=300),
    help="Seconds that a member's part of a list may be old for who says by resourceVersion=0 that "
    "any state will do; 0 asks members every time.",
)
@click.option(
    "--last-state",
    "last_state_seconds",
    default=3600.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds for which callers are shown what a member last answered them while it is away; "
    "0 shows nothing of it.",
)
@click.option(
    "--member-grace",
    "grace_seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster may answer wrongly before informers are served without it.",
)
@click.option(
    "--lost-member-grace",
    "lost_seconds",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds a cluster may be out of reach before informers are served without it.",
)
@click.option(
    "--advertise-url",
    default="",
    callback=_checked_url,
    help="Where agents of Pull clusters reach this server.  [default: where it listens]",
)
@click.option(
    "--ui",
    "serves_page",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Serve the page for browsers at /ui; `clusterspace ui` opens it.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 32),
    help="Processes that serve the address together, a core each; bounds are of all together.",
)
@sign_on_options
@request_options(reads=1600, writes=800)
@server_options
def fleet(
    *,
    hub_kubeconfig: Path | None,
    data_dir: Path,
    host: str,
    port: int,
    federation: bool,
    bulk_delete_members: bool,
    list_seconds: float,
    answer_mib: int,
    answers_mib: int,
    cache_mib: int,
    cache_on_disk: bool,
    any_state_seconds: float,
    last_state_seconds: float,
    grace_seconds: float,
    lost_seconds: float,
    advertise_url: str,
    serves_page: bool,
    workers: int,
    sign_on: "SignOnSettings | None",
    requests: "RequestLimits",
    server: ServerOptions,
    log_format: str,
) -> None:
    """Run the fleet API server: a unified view of the hub and of every member.

    The hub writes a kubeconfig for it, with few rights of its own. Its address appears as a
    kubeconfig in the data directory once the server is ready; who you are is in the hub's.

    \b
    Examples:
      clusterspace fleet --hub-kubeconfig .clusterspace/parts/fleet/kubeconfig
      export KUBECONFIG=.clusterspace/fleet/kubeconfig:.clusterspace/kubeconfig
      kubectl get pods -A
    """
    from clusterspace.fleet.gateway.fanout import FleetLimits
    from clusterspace.roots.clients import component_settings
    from clusterspace.roots.fleet import serve_until_stopped
    from clusterspace.roots.processes import read_when_there
    from clusterspace.roots.settings import FleetSettings

    if workers > 1 and answers_mib < answer_mib * workers:
        raise click.UsageError(
            f"--answers-mib {answers_mib} is shared by {workers} workers, and one answer may have "
            f"--answer-mib {answer_mib}: give it at least {answer_mib * workers}"
        )
    if workers > 1 and last_state_seconds:
        raise click.UsageError(
            "--workers: what a member was before it went away is known to the worker that asked "
            "it, and would be shown by chance: say --last-state 0"
        )

    def read_hub() -> "ConnectionSettings":
        return component_settings("fleet", hub_kubeconfig)

    async def work() -> None:
        settings = FleetSettings(
            hub=await read_when_there(read_hub),
            read_hub=read_hub,
            data_dir=data_dir,
            host=host,
            port=port,
            federation=federation,
            bulk_delete_members=bulk_delete_members,
            cache_on_disk=cache_on_disk,
            limits=FleetLimits(
                list_seconds=list_seconds,
                answer_bytes=answer_mib << 20,
                answers_bytes=answers_mib << 20,
                cached_bytes=cache_mib << 20,
                any_state_seconds=any_state_seconds,
                last_state_seconds=last_state_seconds,
                grace_seconds=grace_seconds,
                lost_seconds=lost_seconds,
            ),
            server_names=server.server_names,
            endpoint=server.endpoint,
            shutdown_delay=server.shutdown_delay,
            member_cidrs=server.member_cidrs,
            connections=server.connections,
            audit=server.audit,
            **server.audit_log,
            identities=server.identities,
            requests=requests,
            advertised_url=advertise_url.rstrip("/"),
            serves_page=serves_page,
            sign_on=sign_on,
            workers=workers,
        )
        await serve_until_stopped(settings)

    serve(work, log_format, port=port)


@click.command()
@click.argument("name")
@listen_options(
    port=0,
    data_dir=None,
    kept="Where certificates and the kubeconfig are kept; the objects live in memory.",
)
@click.option(
    "--nodes", default=3, show_default=True, type=click.IntRange(0, 5000), help="Number of nodes."
)
@click.option("--node-cpu", default="8", show_default=True, help="Processors of each node.")
@click.option("--node-memory", default="32Gi", show_default=True, help="Memory of each node.")
@click.option("--node-pods", default=110, show_default=True, help="Pods each node has room for.")
@click.option(
    "--ready-after",
    default=0.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds from a pod's start until it is ready.",
)
@click.option("--seed", type=int, help="Make generated names and UIDs the same every time.")
@click.option(
    "--count",
    type=click.IntRange(1, 5000),
    help="Run so many members in this process, called NAME-1 and so on, with a directory each in "
    "the data directory and ports from --port on.",
)
@token_auth_file_option
@log_format_option
def sim(
    *,
    name: str,
    data_dir: Path,
    host: str,
    port: int,
    nodes: int,
    node_cpu: str,
    node_memory: str,
    node_pods: int,
    ready_after: float,
    seed: int | None,
    count: int | None,
    token_auth_file: Path | None,
    log_format: str,
) -> None:
    """Run a simulated member cluster called NAME: a real API, made-up nodes and pods.

    Nothing is run and nothing is kept. The kubeconfig appears in the data directory once the
    member is ready.

    \b
    Examples:
      clusterspace sim east --data-dir .east --nodes 3
      kubectl --kubeconfig .east/kubeconfig get nodes
      clusterspace sim m --data-dir .many --nodes 1 --count 100
      kubectl --kubeconfig .many/m-42/kubeconfig get nodes
    """
    from clusterspace.kube.names import dns1123_label_problems
    from clusterspace.kube.quantities import parse_quantity
    from clusterspace.roots.settings import SimSettings
    from clusterspace.roots.sim import serve_many_until_stopped, serve_until_stopped
    from clusterspace.sim.nodes import NodeShape
    from clusterspace.sim.pods import Pace

    problems = dns1123_label_problems(f"{name}-{count}" if count else name)
    if problems:
        # Nodes are named after the member, so its name must be fit for theirs.
        raise click.BadParameter("; ".join(problems), param_hint="NAME")
    if count and port and port + count - 1 > LAST_PORT:
        why = f"{count} ports from {port} on are more than there are"
        raise click.BadParameter(why, param_hint="--port")

    async def work() -> None:
        shape = NodeShape(
            cpu=str(parse_quantity(node_cpu)),
            memory=str(parse_quantity(node_memory)),
            pods=node_pods,
        )
        settings = SimSettings(
            name=name,
            data_dir=data_dir,
            host=host,
            port=port,
            nodes=nodes,
            shape=shape,
            pace=Pace(ready=ready_after),
            seed=seed,
            token_auth_file=token_auth_file,
        )
        if count:
            await serve_many_until_stopped(settings, count)
        else:
            await serve_until_stopped(settings)

    serve(work, log_format, port=port)
