// The first screen: what is broken, and every cluster in a row.

import { follow, HUB } from "./api.js";
import { fill, h, link } from "./dom.js";
import { age, clusterState, countPlaces, findProblems, isPaused, readRepair, room, summarize, taints } from "./model.js";
import { badge, bar, command, empty, feedNotices } from "./parts.js";
import { createStore } from "./store.js";
import { S } from "./strings.js";
import { VirtualTable } from "./table.js";

const CLUSTERS = `${HUB}/apis/cluster.karmada.io/v1alpha1/clusters`;
const BINDINGS = `${HUB}/apis/work.karmada.io/v1alpha2/resourcebindings`;
const CLUSTER_BINDINGS = `${HUB}/apis/work.karmada.io/v1alpha2/clusterresourcebindings`;
const EVENTS = `${HUB}/api/v1/events`;
const MOST_PROBLEMS = 200;
const CLASSES = ["name", "", "version", "num", "room", "room", "room", "num", "num", "taints"];
const ORDER = ["unwell", "silent", "leaving", "joining", "well"];

/** Keep what a feed tells in a map by UID. */
export function gather(store, keep) {
  return {
    list(items) {
      store.set(new Map(items.map((each) => [each.metadata.uid, keep(each)])));
    },
    event(type, object) {
      store.update((map) => (type === "DELETED" ? map.delete(object.metadata.uid) : map.set(object.metadata.uid, keep(object))));
    },
  };
}

/** Of a cluster, what is shown: its status also lists every API it has. */
export function slim(cluster) {
  const { metadata, spec = {}, status = {} } = cluster;
  return {
    metadata: { name: metadata.name, uid: metadata.uid, creationTimestamp: metadata.creationTimestamp, deletionTimestamp: metadata.deletionTimestamp },
    spec: { taints: spec.taints, syncMode: spec.syncMode },
    status: { conditions: status.conditions, kubernetesVersion: status.kubernetesVersion, nodeSummary: status.nodeSummary, resourceSummary: status.resourceSummary },
  };
}

export function fleetScreen(signal) {
  const clusters = createStore(new Map());
  const bindings = createStore(new Map());
  const clusterBindings = createStore(new Map());
  const repairs = createStore(new Map());
  // Four, and no more: browsers have six connections for one server.
  const notices = feedNotices([S.what.clusters, S.what.bindings, S.what.clusterBindings, S.what.repairs]);
  const feeds = [
    [CLUSTERS, clusters, slim, notices[0]],
    [BINDINGS, bindings, summarize, notices[1]],
    [CLUSTER_BINDINGS, clusterBindings, summarize, notices[2]],
    [EVENTS, repairs, readRepair, notices[3], { fieldSelector: "reason=DriftRepaired" }],
  ];

  const problems = h("div", { class: "problems" });
  const problemCount = h("span", { class: "count" });
  const filter = h("input", { type: "search", id: "filter", "data-find": true, placeholder: S.clusters.filter, "aria-label": S.clusters.filter, autocomplete: "off", spellcheck: "false" });
  const clusterCount = h("span", { class: "count", role: "status" });
  const table = new VirtualTable();
  table.describe(S.clusters.title, S.clusters.columns, CLASSES);
  const none = h("div");

  function draw() {
    const now = Date.now();
    const all = [...clusters.get().values()];
    const placed = [...bindings.get().values(), ...clusterBindings.get().values()];
    const counts = countPlaces(placed);
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    drawProblems(findProblems(all, placed, [...repairs.get().values()].filter(Boolean)), words, now);
    drawClusters(all, counts, words, now);
  }

  function drawProblems(found, words, now) {
    const matching = found.filter((each) => words.every((word) => `${each.what} ${each.cluster} ${each.why} ${each.word}`.toLowerCase().includes(word)));
    problemCount.textContent = found.length ? String(found.length) : "";
    const states = notices.map((each) => each.is);
    if (!found.length) {
      const isKnown = states.every((each) => each === "live");
      const isBlind = states[0] === "live" && states.slice(1).includes("refused");
      delete problems.dataset.mark;
      fill(problems, empty(isKnown ? S.broken.none : isBlind ? S.broken.placesUnknown : S.broken.unknown));
      return;
    }
    const mark = JSON.stringify(matching.map((each) => [each, age(each.since, now)]));
    if (problems.dataset.mark === mark) return; // nothing new: what is selected stays so
    problems.dataset.mark = mark;
    const rows = matching.slice(0, MOST_PROBLEMS).map((each) =>
      h(
        "li",
        { class: `problem ${each.is}` },
        badge(each.state || each.is, each.word),
        h("span", { class: "what" }, each.resource ? link(objectAddress(each.resource), each.what) : h("strong", {}, each.what)),
        each.cluster ? h("span", { class: "where" }, each.cluster) : null,
        h("span", { class: "why" }, each.why),
        each.since ? h("time", { datetime: each.since, title: each.since }, age(each.since, now)) : null,
      ),
    );
    const none = rows.length ? null : empty(S.broken.noneMatches);
    fill(problems, none || h("ul", { class: "list", tabindex: "0", "aria-label": S.broken.title }, rows), matching.length > MOST_PROBLEMS ? h("p", { class: "quiet" }, S.broken.more(matching.length - MOST_PROBLEMS)) : null);
  }

  function drawClusters(all, counts, words, now) {
    const states = { well: 0, unwell: 0, silent: 0, leaving: 0, joining: 0 };
    const rows = [];
    for (const cluster of all) {
      const state = clusterState(cluster);
      states[state.is] += 1;
      const name = cluster.metadata.name;
      const version = (cluster.status.kubernetesVersion || "").split("+")[0];
      const tainted = taints(cluster).join(", ");
      const paused = isPaused(cluster) ? S.clusters.paused : "";
      if (!words.every((word) => `${name} ${state.is} ${version} ${tainted} ${paused}`.toLowerCase().includes(word))) continue;
      const count = counts.get(name) || { placed: 0, failing: 0 };
      const since = state.is === "well" ? "" : age(state.since, now);
      const nodes = cluster.status.nodeSummary;
      const uses = ["cpu", "memory", "pods"].map((each) => room(cluster, each));
      const mark = JSON.stringify([state.is, since, state.why, version, nodes, uses, count, tainted, paused]);
      rows.push({
        key: cluster.metadata.uid,
        mark,
        order: ORDER.indexOf(state.is),
        name,
        draw: () =>
          h(
            "tr",
            {},
            h("th", { scope: "row", class: "name" }, link(`/search?kind=pods&labels=${encodeURIComponent(`clusterspace.io/cluster=${name}`)}`, name)),
            h("td", {}, badge(state.is, since ? S.since(S.state[state.is], since) : S.state[state.is], state.why), paused ? badge("paused", paused) : null),
            h("td", { class: "version" }, version || S.clusters.unknown),
            h("td", { class: "num" }, nodes ? `${nodes.readyNum || 0}/${nodes.totalNum || 0}` : S.clusters.unknown),
            uses.map((each) => h("td", { class: "room" }, bar(each))),
            h("td", { class: "num" }, String(count.placed)),
            h("td", { class: `num${count.failing ? " failing" : ""}` }, String(count.failing)),
            h("td", { class: "taints", title: tainted }, tainted || S.clusters.unknown),
          ),
      });
    }
    rows.sort((one, other) => one.order - other.order || (one.name < other.name ? -1 : 1));
    table.rows = rows;
    const isLive = notices[0].is === "live";
    clusterCount.textContent = all.length ? `${S.clusters.count(rows.length, all.length)} · ${S.clusters.summary(states)}` : "";
    // Not an empty list unless it is known to be one.
    table.hidden = !rows.length;
    fill(none, rows.length || !isLive ? null : all.length ? empty(S.clusters.noneMatches) : empty(S.clusters.none, S.clusters.noneNext));
  }

  for (const [path, store, keep, notice, query] of feeds) {
    const kept = gather(store, keep);
    store.subscribe(draw);
    follow(path, {
      signal,
      query,
      told: {
        list(items, warnings) {
          kept.list(items);
          notice.warnings(warnings);
        },
        event: kept.event,
        state(state) {
          notice.state(state);
          store.update(() => {});
        },
      },
    });
    signal.addEventListener("abort", () => notice.stop(), { once: true });
  }
  filter.addEventListener("input", draw);
  // Ages are drawn anew as they grow; nothing is asked for it.
  const clock = setInterval(draw, 10_000);
  signal.addEventListener("abort", () => clearInterval(clock), { once: true });

  return h(
    "div",
    { class: "screen fleet" },
    h("h1", {}, S.fleet),
    notices[0].node,
    h("section", { class: "panel", "aria-labelledby": "broken" }, h("div", { class: "head" }, h("h2", { id: "broken" }, S.broken.title, " ", problemCount)), problems),
    h("section", { class: "panel", "aria-labelledby": "clusters" }, h("div", { class: "head" }, h("h2", { id: "clusters" }, S.clusters.title), clusterCount, filter), table, none),
    command("clusterspace top", "kubectl --context hub get clusters,resourcebindings -A"),
  );
}

/** Where one object is shown. */
export function objectAddress({ apiVersion, kind, namespace, name }) {
  return `/object/${[apiVersion.replace("/", ":"), kind, namespace || "-", name].map(encodeURIComponent).join("/")}`;
}
