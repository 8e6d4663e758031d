"""`clusterspace sim`: run a simulated member in the foreground until Ctrl-C."""

from pathlib import Path

import click

from clusterspace.cli.foreground import log_format_option, serve


@click.command()
@click.argument("name")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where certificates and the kubeconfig are kept; the objects live in memory.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port to listen on; 0: a free one.")
@click.option(
    "--nodes", default=3, show_default=True, type=click.IntRange(0, 5000), help="Number of nodes."
)
@click.option("--node-cpu", default="8", show_default=True, help="Processors of each node.")
@click.option("--node-memory", default="32Gi", show_default=True, help="Memory of each node.")
@click.option("--node-pods", default=110, show_default=True, help="Pods each node has room for.")
@click.option(
    "--ready-after",
    default=0.2,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds from a pod's start until it is ready.",
)
@click.option("--seed", type=int, help="Make generated names and UIDs the same every time.")
@click.option(
    "--token-auth-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help='Static tokens, one line each: token,user,uid,"group1,group2".',
)
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
    """
    from clusterspace.kube.names import dns1123_label_problems
    from clusterspace.kube.quantities import parse_quantity
    from clusterspace.roots.sim import SimSettings, serve_until_stopped
    from clusterspace.sim.nodes import NodeShape
    from clusterspace.sim.pods import Pace

    problems = dns1123_label_problems(name)
    if problems:
        # Nodes are named after the member, so its name must be fit for theirs.
        raise click.BadParameter("; ".join(problems), param_hint="NAME")

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
        await serve_until_stopped(settings)

    serve(work, log_format, port=port)
