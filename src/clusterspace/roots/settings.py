"""What the processes are started with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from clusterspace.apiserver.access.audit_log import Rotation
from clusterspace.apiserver.admission.plugins import AdmissionSwitches
from clusterspace.apiserver.http.audit_policy import Policy, default_policy
from clusterspace.apiserver.http.connections import Limits
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.builtins.resources import OPTIONAL_GROUPS
from clusterspace.client.endpoints import Network
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.leases import LeaseTimings
from clusterspace.errors import UnknownApi
from clusterspace.fleet.execution.exclusive import LEASE_SECONDS
from clusterspace.fleet.execution.prune import DeletionLimits
from clusterspace.fleet.execution.unschedulable import UNSCHEDULABLE_SECONDS
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import MonitorSettings, RenewalSettings
from clusterspace.fleet.membership.member_clusters.controller import MemberClusterSettings
from clusterspace.fleet.membership.registration import LOOK_SECONDS
from clusterspace.fleet.membership.status import FREQUENCY_SECONDS
from clusterspace.fleet.membership.tunnels import LOOK_SECONDS as TUNNEL_SECONDS
from clusterspace.fleet.page.sign_on import SignOnSettings
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.kube.autoscaling import SYNC_SECONDS
from clusterspace.roots.installation import worker_directory
from clusterspace.sim.nodes import NodeShape
from clusterspace.sim.pods import Pace

ReadSettings: TypeAlias = Callable[[], ConnectionSettings]
"""Reads a kubeconfig; it may block, and it may fail while the file is being replaced."""


def read_optional_apis(given: Iterable[str]) -> frozenset[str]:
    """Read kube-apiserver's `--runtime-config`; UnknownApi for what cannot be switched here."""
    known = [str(each.group_version.api_version) for each in OPTIONAL_GROUPS]
    asked: set[str] = set()
    for entry in given:
        name, _, value = entry.partition("=")
        if name not in known or value not in ("", "true", "false"):
            raise UnknownApi(
                f"--runtime-config: {entry} cannot be switched here; "
                f"what can is {', '.join(f'{each}=true' for each in known)}"
            )
        if value != "false":
            asked.add(name)
    return frozenset(asked)


def rotation_of(megabytes: int, files: int, days: int) -> Rotation:
    """Return the rotation of an audit log, from kube-apiserver's numbers."""
    return Rotation(megabytes * 1024 * 1024, files, days)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many requests are worked on at once, and whether FlowSchemas say whose."""

    reads: int = 400
    """With the writes, these are the seats that priority levels share."""
    writes: int = 200
    priority_and_fairness: bool = True
    """Without, the two bounds are all there is, and one user has at most half of either."""


FLEET_REQUESTS: Final = RequestLimits(reads=1600, writes=800)
"""Of the fleet API server: its requests wait for members most of their time, for some until they
give up, and what a user has under way there must not keep them from all the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings that hub and fleet API server have in common; port 0 is a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    server_names: tuple[str, ...] = ()
    """What else clients call this server: the certificate has these names too."""
    endpoint: str = ""
    """HOST:PORT of what stands before all replicas of this server, if something does. Kubeconfigs
    and whatever else says where the server is say this."""
    shutdown_delay: float = 0.0
    """Seconds between being told to stop and refusing anything. Meanwhile it is not ready, and
    every answer asks its client to come back on another connection."""
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be besides where they may be anyway."""
    connections: Limits = field(default_factory=Limits)
    audit: Policy = field(default_factory=default_policy)
    """What is audited unless a file says so."""
    audit_policy_file: Path | None = None
    """kube-apiserver's audit policy; with one, its rules alone count."""
    audit_log_path: Path | None = None
    """Where the audit log is; without one, in the data directory."""
    audit_key_file: Path | None = None
    """Keys of the audit log's chain, one a line; the first is used."""
    audit_rotation: Rotation = field(default_factory=Rotation)
    identities: MemberIdentities = field(default_factory=MemberIdentities)
    """Who users of the hub are at members."""
    requests: RequestLimits = field(default_factory=RequestLimits)

    @property
    def certified_names(self) -> tuple[str, ...]:
        """What the certificate of this server is for, besides what everybody's is for."""
        before = urlsplit(f"//{self.endpoint}").hostname
        return (self.host, *self.server_names, *((before,) if before else ()))

    def flags(self) -> dict[str, str]:
        """Return what `/flagz` shows: what a review asks for, by the names of the flags."""
        files = {
            "audit-log-key-file": self.audit_key_file,
            "audit-policy-file": self.audit_policy_file,
        }
        fair = self.requests.priority_and_fairness
        return {
            **{name: "" if file is None else str(file) for name, file in files.items()},
            "allow-member-cidrs": ",".join(map(str, self.member_cidrs)),
            "enable-priority-and-fairness": "true" if fair else "false",
            "host": self.host,
            "impersonate-masters": "true" if self.identities.passes_masters else "false",
        }


@dataclass(frozen=True, slots=True)
class HubSettings(ServerSettings):
    """The settings a hub is started with."""

    data_dir: Path
    store: str = "sqlite"
    token_auth_file: Path | None = None
    admission: AdmissionSwitches = field(default_factory=AdmissionSwitches)
    authentication_file: Path | None = None
    """kube-apiserver's AuthenticationConfiguration; followed while the hub runs."""
    encryption_file: Path | None = None
    """kube-apiserver's EncryptionConfiguration; followed while the hub runs."""
    etcd: EtcdSettings | None = None
    """The etcd cluster that holds the objects; any number of hubs may share it."""
    optional_apis: frozenset[str] = frozenset()
    """Versions of built-in groups that are served only on demand, written `group/version`."""
    accepts_karmada_agents: bool = False
    """Whether Karmada's own `karmadactl register` and karmada-agent may join clusters."""

    def flags(self) -> dict[str, str]:
        """Return what `/flagz` shows of a hub."""
        files = {
            "authentication-config": self.authentication_file,
            "encryption-provider-config": self.encryption_file,
            "token-auth-file": self.token_auth_file,
        }
        return {
            **ServerSettings.flags(self),
            **{name: "" if file is None else str(file) for name, file in files.items()},
            "accept-karmada-agents": "true" if self.accepts_karmada_agents else "false",
            "etcd-servers": "" if self.etcd is None else "given",
            "store": self.store,
        }


@dataclass(frozen=True, slots=True)
class FleetSettings(ServerSettings):
    """The settings a fleet API server is started with."""

    hub: ConnectionSettings
    data_dir: Path
    requests: RequestLimits = field(default_factory=lambda: FLEET_REQUESTS, kw_only=True)
    federation: bool = True
    bulk_delete_members: bool = False
    """Whether `kubectl delete --all` and the like, without a cluster, reach members."""
    cache_on_disk: bool = True
    """Whether what is known of members' objects is written down for the next start."""
    limits: FleetLimits = field(default_factory=FleetLimits)
    read_hub: ReadSettings | None = None
    """Reads `hub` again from where it came from, if it came from a file."""
    advertised_url: str = ""
    """Where agents of Pull clusters reach this server, when it is not where it listens."""
    serves_page: bool = True
    """Whether there is a page for browsers at `/ui`, and sessions for those who log in there."""
    sign_on: SignOnSettings | None = None
    """The issuer that people log in at on the page, beside tokens and certificates."""
    workers: int = 1
    """Processes that serve the address together: each uses a core."""

    def of_worker(self, number: int, port: int) -> "FleetSettings":
        """Return what one of several workers is started with.

        It has files of its own, and its part of all that is bounded: together they take no more
        than one process would.
        """

        def part(whole: int) -> int:
            return -(-whole // self.workers)

        limits, requests, connections, log = (
            self.limits, self.requests, self.connections, self.audit_log_path,
        )  # fmt: skip
        return replace(
            self,
            data_dir=worker_directory(self.data_dir, number),
            port=port,
            limits=replace(
                limits,
                answers_bytes=part(limits.answers_bytes),
                cached_bytes=part(limits.cached_bytes),
            ),
            requests=replace(requests, reads=part(requests.reads), writes=part(requests.writes)),
            connections=replace(
                connections,
                connections=part(connections.connections),
                connections_per_address=part(connections.connections_per_address),
                newcomers=part(connections.newcomers),
                newcomers_per_address=part(connections.newcomers_per_address),
            ),
            audit_log_path=log and log.with_name(f"{log.stem}-{number}{log.suffix}"),
        )

    def flags(self) -> dict[str, str]:
        """Return what `/flagz` shows of a fleet API server."""
        return {
            **ServerSettings.flags(self),
            "bulk-delete-members": "true" if self.bulk_delete_members else "false",
            "insecure-skip-tls-verify": "true" if self.hub.trust.skips_verification else "false",
            "ui": "true" if self.serves_page else "false",
            "workers": str(self.workers),
            "ui-oidc-issuer-url": "" if self.sign_on is None else self.sign_on.issuer,
        }


@dataclass(frozen=True, slots=True)
class SimSettings:
    """The settings a simulated member is started with."""

    name: str
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 3
    shape: NodeShape = field(default_factory=NodeShape)
    pace: Pace = field(default_factory=Pace)
    seed: int | None = None
    """Makes names and UIDs repeatable; without one no two members are alike."""
    token_auth_file: Path | None = None
    requests: RequestLimits = field(default_factory=RequestLimits)
    webhook_cidrs: tuple[Network, ...] = ()
    """Where its webhooks may be although that is loopback or the like."""


@dataclass(frozen=True, slots=True)
class ControllersSettings:
    """The settings the controllers are started with."""

    hub: ConnectionSettings
    read_hub: ReadSettings | None = None
    """Reads `hub` again from where it came from, if it came from a file."""
    status_seconds: float = FREQUENCY_SECONDS
    thresholds: Thresholds = field(default_factory=Thresholds)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    lease: LeaseTimings = field(default_factory=LeaseTimings)
    member_clusters: MemberClusterSettings = field(default_factory=MemberClusterSettings)
    federation: bool = True
    """Whether workloads are propagated; members are looked after in any case."""
    metrics_port: int | None = None
    """Where `/metrics` is on this machine; nowhere unless told."""
    deletions: DeletionLimits = field(default_factory=DeletionLimits)
    evictions: EvictionSettings = field(default_factory=EvictionSettings)
    autoscaling_seconds: float = SYNC_SECONDS
    """How often the load of autoscaled workloads is looked at."""
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be besides where they may be anyway."""
    unschedulable_seconds: float = UNSCHEDULABLE_SECONDS
    """After how long a replica that finds no node is placed elsewhere; 0: never."""
    consumers_server: str = ""
    """Where ClusterConsumers reach clusters; empty: nothing is written for any."""
    consumers_authority: Path | None = None
    """The authority of that address, if it is another than the hub's."""
    watchdog_image: str = ""
    """What is run on Push clusters with leased copies, to stop them; empty: nothing is placed."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """The name of a MemberCluster, and how to reach the hub as its identity."""

    cluster_name: str
    hub: ConnectionSettings
    read_hub: ReadSettings | None = None
    """Reads `hub` again from where it came from: a token ends, and the next one is put there."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings an agent is started with; all else is in the registration on the member."""

    member: ConnectionSettings
    invitation: Invitation | None = None
    """Instead of a registration."""
    status_seconds: float = FREQUENCY_SECONDS
    thresholds: Thresholds = field(default_factory=Thresholds)
    lease: RenewalSettings = field(default_factory=RenewalSettings)
    registration_seconds: float = LOOK_SECONDS
    leadership: LeaseTimings = field(default_factory=LeaseTimings)
    deletions: DeletionLimits = field(default_factory=DeletionLimits)
    exclusive_seconds: float = LEASE_SECONDS
    """For how long exclusive copies run without the hub; 0 promises nothing, and stops none."""
    allows_view: bool = True
    """Whether users reach the member through the agent, with the rights that it gives them."""
    webhook_cidrs: tuple[Network, ...] = ()
    """Where webhooks that interpret may be, besides where they may be for every agent."""
    unschedulable_seconds: float = UNSCHEDULABLE_SECONDS
    """After how long a replica that finds no node is told of; 0: never."""
    tunnel_seconds: float = TUNNEL_SECONDS
    """How often the agent looks which servers it is to keep a tunnel to."""


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """The settings a watchdog is started with."""

    member: ConnectionSettings
    exclusive_seconds: float = LEASE_SECONDS
    """For how long exclusive copies run without the hub."""
    lease: RenewalSettings = field(default_factory=RenewalSettings)
