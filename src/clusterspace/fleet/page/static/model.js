// What the screens say, decided from objects alone: no network, no document, no clock but the one given.
//
// What is broken is decided for `clusterspace top` too, in Python (`problems.py` one folder above): one
// suite has both judge the same fleets. Whoever changes a rule changes it in both.

import { S } from "./strings.js";

const SUFFIXES = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

/** Read a quantity of Kubernetes; NaN for what is none. */
export function quantity(text) {
  const found = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?i?)$/.exec(String(text ?? ""));
  if (!found) return NaN;
  const factor = SUFFIXES[found[2]];
  return factor === undefined ? NaN : Number(found[1]) * factor;
}

/** How long ago, as kubectl writes it: 45s, 12m, 3h, 5d. */
export function age(since, now) {
  const seconds = Math.max(0, Math.floor((now - new Date(since).getTime()) / 1000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

export function condition(object, type) {
  return (object?.status?.conditions || []).find((each) => each?.type === type);
}

/** Whether a cluster is well, and since when and why not. */
export function clusterState(cluster) {
  if (cluster.metadata.deletionTimestamp) return { is: "leaving", since: cluster.metadata.deletionTimestamp, why: "" };
  const ready = condition(cluster, "Ready");
  if (!ready) return { is: "joining", since: cluster.metadata.creationTimestamp, why: "" };
  const is = ready.status === "True" ? "well" : ready.status === "False" ? "unwell" : "silent";
  return { is, since: ready.lastTransitionTime, why: is === "well" ? "" : ready.message || ready.reason || "" };
}

export function isPaused(cluster) {
  return condition(cluster, "DeletionsPaused")?.status === "True";
}

/** How much of a resource is asked for: {share, total} or null when the cluster has not said. */
export function room(cluster, resource) {
  const summary = cluster.status?.resourceSummary;
  const total = summary?.allocatable?.[resource];
  const all = quantity(total);
  if (!(all > 0)) return null;
  const used = quantity(summary.allocated?.[resource] ?? "0");
  return Number.isNaN(used) ? null : { share: used / all, total: String(total) };
}

export function taints(cluster) {
  return (cluster.spec?.taints || []).map((each) => `${each.key}${each.value ? `=${each.value}` : ""}:${each.effect}`);
}

/** A number that counts things; what a cluster says in its place is no number. */
const whole = (value) => (Number.isInteger(value) ? value : undefined);

/**
 * How an object is in one cluster; without `reported`, nothing was said of it yet.
 * @typedef {{cluster: string, wanted?: number, isPlaced: boolean, reported?: boolean, applied?: boolean, health?: string, message?: string, ready?: number}} Place
 */

/** What the screens need of a binding, and no more: a fleet may have many thousand. */
export function summarize(binding) {
  const { metadata, spec = {}, status = {} } = binding;
  const resource = spec.resource || {};
  const wanted = new Map((spec.clusters || []).map((each) => [each.name, each.replicas]));
  /** @type {Map<string, Place>} */
  const places = new Map([...wanted].map(([name, replicas]) => [name, { cluster: name, wanted: replicas, isPlaced: true }]));
  for (const each of status.aggregatedStatus || []) {
    const place = places.get(each.clusterName) || { cluster: each.clusterName, isPlaced: false };
    places.set(each.clusterName, {
      ...place,
      applied: each.applied === true,
      health: each.health || "Unknown",
      message: each.appliedMessage || "",
      ready: whole(each.status?.readyReplicas) ?? (whole(each.status?.replicas) !== undefined ? 0 : undefined),
      reported: true,
    });
  }
  const annotations = metadata.annotations || {};
  const namespacedPolicy = annotations["propagationpolicy.karmada.io/name"];
  const clusterPolicy = annotations["clusterpropagationpolicy.karmada.io/name"];
  return {
    uid: metadata.uid,
    name: metadata.name,
    namespace: metadata.namespace || "",
    created: metadata.creationTimestamp,
    resource: { apiVersion: resource.apiVersion || "", kind: resource.kind || "", namespace: resource.namespace || "", name: resource.name || "", uid: resource.uid || "" },
    replicas: spec.replicas,
    policy: namespacedPolicy
      ? { kind: "PropagationPolicy", namespace: annotations["propagationpolicy.karmada.io/namespace"] || metadata.namespace, name: namespacedPolicy }
      : clusterPolicy
        ? { kind: "ClusterPropagationPolicy", namespace: "", name: clusterPolicy }
        : null,
    places: [...places.values()],
    scheduled: condition(binding, "Scheduled"),
    applied: condition(binding, "FullyApplied"),
    evictions: (spec.gracefulEvictionTasks || []).map((each) => ({ cluster: each.fromCluster, reason: each.reason || "", since: each.creationTimestamp })),
  };
}

/** Whether a place is not as it should be: "apply", "health" or "". */
export function trouble(place) {
  if (!place.reported) return "";
  if (!place.applied) return "apply";
  return place.health === "Unhealthy" || isShort(place) ? "health" : "";
}

/** Whether fewer replicas are ready than there should be. */
const isShort = ({ ready, wanted }) => ready !== undefined && wanted !== undefined && ready < wanted;

/** How many objects are placed in each cluster, and how many of those are in trouble. */
export function countPlaces(bindings) {
  const counts = new Map();
  for (const binding of bindings) {
    for (const place of binding.places) {
      const count = counts.get(place.cluster) || { placed: 0, failing: 0 };
      count.placed += 1;
      if (trouble(place)) count.failing += 1;
      counts.set(place.cluster, count);
    }
  }
  return counts;
}

const ORDER = ["cluster", "apply", "schedule", "health", "drift", "eviction", "paused"];
/** Once or twice somebody was mistaken; from here on somebody or something insists. */
const REPAIRS_ARE_MANY = 3;

/** What an Event says was put back, and where; null for one that is about something else. */
export function readRepair(event) {
  const about = event.involvedObject || {};
  const found = /^Put back in the cluster (\S+): (.*)$/s.exec(event.message || "");
  if (!found || about.kind === "Work" || event.reason !== "DriftRepaired") return null;
  const resource = { apiVersion: about.apiVersion || "", kind: about.kind || "", namespace: about.namespace || "", name: about.name || "" };
  return { resource, cluster: found[1], fields: found[2], count: event.count || 1, first: event.firstTimestamp || "", last: event.lastTimestamp || "" };
}

/** An object, as people name it. */
export const named = ({ kind, namespace, name }) => `${kind} ${namespace ? `${namespace}/` : ""}${name}`;

/**
 * Everything that is not as it should be, the worst first:
 * {is, word, state, what, resource, cluster, why, since}.
 */
export function findProblems(clusters, bindings, repairs = []) {
  const problems = [];
  const silent = new Set();
  const counts = countPlaces(bindings);
  const add = (is, what, cluster, why, since, more = {}) => problems.push({ key: `${what}/${cluster}/${more.uid || ""}`, is, word: S.broken.kinds[is], what, cluster, why, since: since || "", ...more });
  for (const cluster of clusters) {
    const { name } = cluster.metadata;
    const state = clusterState(cluster);
    if (state.is === "silent") silent.add(name);
    if (state.is === "unwell" || state.is === "silent") {
      const placed = state.is === "silent" ? counts.get(name)?.placed : 0;
      const why = [state.why, placed ? S.broken.stale(placed) : ""].filter(Boolean).join("; ");
      add("cluster", S.broken.cluster(name), "", why, state.since, { state: state.is, word: S.broken.clusterIs[state.is] });
    }
    if (isPaused(cluster)) {
      const paused = condition(cluster, "DeletionsPaused");
      add("paused", S.broken.cluster(name), "", paused.message || S.broken.paused, paused.lastTransitionTime);
    }
  }
  for (const binding of bindings) {
    const { resource, uid } = binding;
    const about = (is, cluster, why, since) => add(is, named(resource), cluster, why, since, { resource, uid });
    if (binding.scheduled && binding.scheduled.status !== "True") {
      about("schedule", "", binding.scheduled.message || binding.scheduled.reason || S.broken.notScheduled, binding.scheduled.lastTransitionTime);
    }
    for (const place of binding.places) {
      // What a silent cluster last said is old, and is told with the cluster.
      const is = silent.has(place.cluster) ? "" : trouble(place);
      if (is === "apply") about("apply", place.cluster, place.message || S.broken.notApplied, binding.applied?.lastTransitionTime);
      // Of one that is unhealthy with all its replicas their number says nothing.
      if (is === "health") about("health", place.cluster, isShort(place) ? S.broken.notReady(place.ready, place.wanted) : S.broken.unhealthy, "");
    }
    for (const task of binding.evictions) about("eviction", task.cluster, S.broken.evicted(task.reason), task.since);
  }
  for (const several of Map.groupBy(repairs, (each) => `${named(each.resource)} ${each.cluster}`).values()) {
    const count = several.reduce((sum, each) => sum + each.count, 0);
    if (count < REPAIRS_ARE_MANY) continue;
    const [{ resource, cluster }] = several;
    const latest = several.reduce((one, other) => (`${one.last} ${one.fields}` < `${other.last} ${other.fields}` ? other : one));
    const first = several.map((each) => each.first).sort()[0];
    add("drift", named(resource), cluster, S.broken.repaired(count, latest.fields), first, { resource });
  }
  return problems.sort((one, other) => ORDER.indexOf(one.is) - ORDER.indexOf(other.is) || (one.key < other.key ? -1 : 1));
}

/** Take apart a name of the fleet: `web.clusterspace.member1`. */
export function splitName(name) {
  const at = name.lastIndexOf(".clusterspace.");
  return at > 0 ? { own: name.slice(0, at), cluster: name.slice(at + 14) } : { own: name, cluster: "" };
}

/** One pod in a row. */
export function podRow(pod) {
  const { own, cluster } = splitName(pod.metadata.name);
  const statuses = pod.status?.containerStatuses || [];
  const waiting = statuses.map((each) => each.state?.waiting?.reason || each.state?.terminated?.reason).find(Boolean);
  return {
    key: pod.metadata.uid || pod.metadata.name,
    name: pod.metadata.name,
    own,
    cluster: cluster || "hub",
    status: pod.metadata.deletionTimestamp ? "Terminating" : waiting || pod.status?.reason || pod.status?.phase || "",
    ready: `${statuses.filter((each) => each.ready).length}/${(pod.spec?.containers || []).length}`,
    restarts: statuses.reduce((sum, each) => sum + (each.restartCount || 0), 0),
    node: splitName(pod.spec?.nodeName || "").own,
    created: pod.metadata.creationTimestamp,
    containers: (pod.spec?.containers || []).map((each) => each.name),
    ports: (pod.spec?.containers || []).flatMap((each) => (each.ports || []).filter((port) => (port.protocol || "TCP") === "TCP").map((port) => port.containerPort)),
  };
}

/** Commands that reach something from where its user is: `what` is a pod, or svc/NAME. */
export function forwards(what, namespace, ports) {
  const local = (port) => (port < 1024 ? 8000 + port : port);
  return (ports.length ? ports.slice(0, 3).map((each) => `${local(each)}:${each}`) : ["8080:PORT"]).map((each) => `kubectl port-forward -n ${quoted(namespace)} ${quoted(what)} ${each}`);
}

/** A word for a shell, in quotes where it needs them. */
export function quoted(word) {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** An object as YAML; texts that could be read as something else are in quotes. */
export function yaml(value, indent = "") {
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((each) => `${indent}- ${nested(each, `${indent}  `).trimStart()}`).join("\n");
  }
  if (value && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return "{}";
    return entries.map(([key, each]) => `${indent}${scalar(key)}:${behind(each, indent)}`).join("\n");
  }
  return scalar(value);
}

function nested(value, indent) {
  return yaml(value, indent);
}

function behind(value, indent) {
  const isFilled = value && typeof value === "object" && (Array.isArray(value) ? value.length : Object.keys(value).length);
  if (isFilled) return `\n${yaml(value, Array.isArray(value) ? indent : `${indent}  `)}`;
  if (typeof value === "string" && value.includes("\n") && !/[^\n\x20-\x7e\u00a0-\u2027\u202a-\ud7ff]|^\s|\n\n$/.test(value)) {
    const lines = value.replace(/\n$/, "").split("\n");
    return ` |${value.endsWith("\n") ? "" : "-"}\n${lines.map((each) => (each ? `${indent}  ${each}` : "")).join("\n")}`;
  }
  return ` ${yaml(value, indent)}`;
}

function scalar(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value !== "string") return String(value);
  const isPlain = /^[A-Za-z_/.][A-Za-z0-9_./ ()=+-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$/i.test(value) && !value.endsWith(" ");
  // What JSON leaves as it is and YAML takes for the end of a line, or for nothing printable.
  const escaped = (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return isPlain ? value : JSON.stringify(value).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, escaped);
}
