// What is on its way: migrations, moves off clusters, drains and staged runs, as they happen.

import { askJson, follow, HUB, withQuery } from "./api.js";
import { fill, focusKeeper, h, link } from "./dom.js";
import { gather, objectAddress, slim } from "./fleet.js";
import { age, condition, quoted, summarize, trouble } from "./model.js";
import { badge, command, empty, feedNotice, section } from "./parts.js";
import { createStore } from "./store.js";
import { S } from "./strings.js";
import { plainTable } from "./table.js";

const MIGRATIONS = `${HUB}/apis/migration.clusterspace.io/v1alpha1/migrations`;
const ITEMS = `${HUB}/apis/migration.clusterspace.io/v1alpha1/migrationitems`;
const RUNS = `${HUB}/apis/placement.kubernetes-fleet.io/v1beta1/clusterstagedupdateruns`;
const NAMESPACED_RUNS = `${HUB}/apis/placement.kubernetes-fleet.io/v1beta1/stagedupdateruns`;
const CLUSTERS = `${HUB}/apis/cluster.karmada.io/v1alpha1/clusters`;
const BINDINGS = `${HUB}/apis/work.karmada.io/v1alpha2/resourcebindings`;
const NAME = "migration.clusterspace.io/name";
const DRAIN = "clusterspace.io/drain";
const MOST_ROWS = 200;
const PHASES = { Applied: "yes", Undone: "plain", Stopped: "no", Paused: "paused", Applying: "eviction", Undoing: "eviction" };

// -- decided from objects alone ----------------------------------------------------------------------

/** How far a migration is. @param {any} migration */
export function migrationRow({ metadata, spec = {}, status = {} }) {
  const counts = Object.fromEntries(["taken", "skipped", "refused", "undone", "pending", "taking"].map((each) => [each, Number(status[each]) || 0]));
  const all = Number(spec.items) || 0;
  const done = Math.min(all, counts.taken + counts.skipped + counts.refused + counts.undone);
  return { name: metadata.name, cluster: spec.cluster?.name || "", phase: status.phase || S.moves.pending, message: status.message || "", counts, all, done, updated: status.updatedAt || metadata.creationTimestamp };
}

/** How far the stages of a run are: [{name, is, done, all, waiting}]. */
export function stagesOf(run) {
  return (run.status?.stagesStatus || []).map((stage) => {
    const about = { status: { conditions: stage.conditions } };
    const clusters = stage.clusters || [];
    const done = clusters.filter((each) => condition({ status: { conditions: each.conditions } }, "Succeeded")?.status === "True").length;
    const ended = condition(about, "Succeeded");
    const tasks = [...(stage.beforeStageTaskStatus || []), ...(stage.afterStageTaskStatus || [])];
    const waits = tasks.filter((each) => each.type === "Approval" && each.approvalRequestName && condition({ status: { conditions: each.conditions } }, "ApprovalRequestApproved")?.status !== "True");
    const is = ended ? (ended.status === "True" ? "yes" : "no") : condition(about, "Progressing") ? "eviction" : "plain";
    return { name: stage.stageName || "", is, done, all: clusters.length, waiting: is === "yes" ? [] : waits.map((each) => each.approvalRequestName), why: ended?.status === "False" ? ended.message || ended.reason || "" : "" };
  });
}

/** A run as it is shown: what is in a namespace, and a policy's run is, says so. @param {any} run */
export function runRow(run) {
  const { metadata, spec = {} } = run;
  const prefix = metadata.namespace ? `${metadata.namespace}/` : "";
  return { name: `${prefix}${metadata.name}`, placement: spec.placementName || "", state: spec.state || "", stages: stagesOf(run), created: metadata.creationTimestamp };
}

/** Clusters that are drained, and what is there yet. */
export function drainsOf(clusters, bindings) {
  const drained = clusters.map((each) => ({ name: each.metadata.name, taint: (each.spec.taints || []).find((taint) => taint.key === DRAIN) })).filter((each) => each.taint);
  return drained.map(({ name, taint }) => ({ name, since: taint.timeAdded || "", left: bindings.filter((each) => each.places.some((place) => place.cluster === name && place.isPlaced)).length, leaving: bindings.filter((each) => each.evictions.some((task) => task.cluster === name)).length }));
}

// -- the screen --------------------------------------------------------------------------------------

export function movesScreen(signal) {
  const migrations = createStore(new Map());
  const runs = createStore(new Map());
  const namespacedRuns = createStore(new Map());
  const clusters = createStore(new Map());
  const bindings = createStore(new Map());
  const feeds = [
    [MIGRATIONS, migrations, (each) => each, feedNotice(S.what.migrations)],
    [BINDINGS, bindings, summarize, feedNotice(S.what.bindings)],
    [CLUSTERS, clusters, slim, feedNotice(S.what.clusters)],
    [RUNS, runs, (each) => each, feedNotice(S.what.runs)],
    // The last one: of the six connections that a browser has to a server, one is left for questions.
    [NAMESPACED_RUNS, namespacedRuns, (each) => each, feedNotice(S.what.namespacedRuns)],
  ];
  const isLive = (at) => feeds[at][3].is === "live";
  const places = { migrations: h("div"), moves: h("div"), drains: h("div"), runs: h("div") };
  const items = h("div");
  const marks = {};

  /** Draw a part anew only when what it says has changed, so that focus stays where it is. */
  function part(name, said, nodes) {
    const mark = JSON.stringify(said);
    if (marks[name] === mark) return;
    marks[name] = mark;
    fill(places[name], nodes());
  }

  function draw() {
    const now = Date.now();
    const placed = [...bindings.get().values()];
    const taken = [...migrations.get().values()].map(migrationRow).sort((one, other) => (one.updated < other.updated ? 1 : -1));
    part("migrations", [taken, taken.map((each) => age(each.updated, now)), isLive(0)], () =>
      taken.length
        ? plainTable(S.moves.migrations, S.moves.migrationColumns, taken.map((each) => ({ cells: [h("strong", {}, each.name), each.cluster, badge(PHASES[each.phase] || "plain", each.phase), progress(each), String(each.counts.refused), age(each.updated, now), each.message, h("button", { type: "button", class: "small", "aria-label": S.moves.itemsOf(each.name), onclick: () => showItems(each) }, S.moves.items)] })), ["", "", "", "", "num", "num", "wrap", ""])
        : isLive(0) ? empty(S.moves.noMigrations, "clusterspace migrate plan -C NAME -f FILE") : null,
    );
    const moving = placed.flatMap((each) => each.evictions.map((task) => ({ ...task, resource: each.resource, to: each.places.filter((place) => place.isPlaced && place.cluster !== task.cluster).map((place) => [place.cluster, place.reported && !trouble(place)]) })));
    part("moves", [moving, moving.map((each) => age(each.since, now)), isLive(1)], () =>
      moving.length
        ? [plainTable(S.moves.moves, S.moves.moveColumns, moving.slice(0, MOST_ROWS).map((each) => ({ cells: [link(objectAddress(each.resource), `${each.resource.kind} ${each.resource.namespace ? `${each.resource.namespace}/` : ""}${each.resource.name}`), each.cluster, each.to.map(([name, isWell]) => badge(isWell ? "yes" : "health", name, isWell ? S.moves.arrived : S.moves.notYet)), each.reason, age(each.since, now)] })), ["", "", "", "wrap", "num"]), moving.length > MOST_ROWS ? h("p", { class: "quiet body" }, S.moves.more(moving.length - MOST_ROWS)) : null]
        : isLive(1) ? empty(S.moves.noMoves) : null,
    );
    const drained = drainsOf([...clusters.get().values()], placed);
    part("drains", [drained, isLive(2) && isLive(1)], () =>
      drained.length ? plainTable(S.moves.drains, S.moves.drainColumns, drained.map((each) => ({ cells: [h("strong", {}, each.name), isLive(1) ? String(each.left) : S.clusters.unknown, isLive(1) ? String(each.leaving) : S.clusters.unknown, each.since ? age(each.since, now) : ""] })), ["", "num", "num", "num"]) : isLive(2) ? empty(S.moves.noDrains, "clusterspace drain NAME") : null,
    );
    const areAllRuns = isLive(3) && isLive(4);
    const staged = [...runs.get().values(), ...namespacedRuns.get().values()].map(runRow).sort((one, other) => (one.created < other.created ? 1 : -1));
    part("runs", [staged, areAllRuns], () =>
      staged.length ? plainTable(S.moves.runs, S.moves.runColumns, staged.map((each) => ({ cells: [h("strong", {}, each.name), each.placement, each.state, each.stages.map((stage) => h("p", { class: "stage" }, badge(stage.is, S.moves.stage(stage)), stage.waiting.map((name) => h("span", {}, ` ${S.moves.waits} `, h("code", {}, name))), stage.why ? ` ${stage.why}` : null))] })), ["", "", "", "wrap"]) : areAllRuns ? empty(S.moves.noRuns) : null,
    );
  }

  function progress({ done, all, counts }) {
    const said = S.moves.progress(done, all, counts);
    return [h("progress", { max: String(all || 1), value: String(done), "aria-label": said }), " ", said];
  }

  /** What became of the objects of a migration that were not simply taken. */
  async function showItems({ name }) {
    const giveBack = focusKeeper();
    const title = h("h2", { id: "items", tabindex: "-1" }, S.moves.itemsOf(name));
    const body = h("div", {}, h("p", { class: "quiet body" }, S.feed.loading(S.moves.items)));
    fill(items, h("section", { class: "panel", "aria-labelledby": "items" }, h("div", { class: "head" }, title, h("button", { type: "button", class: "small", onclick: () => (fill(items), giveBack()) }, S.close)), body), command(`clusterspace migrate status ${quoted(name)}`, `clusterspace migrate prove ${quoted(name)}`));
    title.focus();
    try {
      const found = [];
      let token = "";
      do {
        const { value } = await askJson(withQuery(ITEMS, { labelSelector: `${NAME}=${name}`, limit: "50", continue: token }), { signal });
        for (const chunk of value.items) (chunk.spec?.items || []).forEach((each, at) => found.push({ ...each, ...(chunk.status?.items?.[at] || {}) }));
        token = value.metadata?.continue || "";
      } while (token);
      const odd = found.filter((each) => each.state !== "Taken");
      const rows = odd.slice(0, MOST_ROWS).map((each) => ({ cells: [`${each.kind} ${each.namespace ? `${each.namespace}/` : ""}${each.name}`, badge(each.state === "Refused" ? "no" : "plain", each.state || S.moves.pending), each.reason || ""] }));
      fill(body, h("p", { class: "body" }, S.moves.itemCount(found.length - odd.length, found.length)), rows.length ? plainTable(S.moves.items, S.moves.itemColumns, rows, ["", "", "wrap"]) : null, odd.length > MOST_ROWS ? h("p", { class: "quiet body" }, S.moves.more(odd.length - MOST_ROWS)) : null);
    } catch (error) {
      if (!signal.aborted) fill(body, h("p", { class: "notice bad" }, S.failed(error.message)));
    }
  }

  for (const [path, store, keep, notice] of feeds) {
    const kept = gather(store, keep);
    store.subscribe(draw);
    follow(path, {
      signal,
      told: {
        list: (found, warnings) => (kept.list(found), notice.warnings(warnings)),
        event: kept.event,
        state: (state) => (notice.state(state), store.update(() => {})),
      },
    });
    signal.addEventListener("abort", () => notice.stop(), { once: true });
  }
  const clock = setInterval(draw, 10_000);
  signal.addEventListener("abort", () => clearInterval(clock), { once: true });
  const panel = (name, ...notices) => section(S.moves[name], name, ...notices.map((each) => each.node), places[name]);
  return h(
    "div",
    { class: "screen" },
    h("h1", {}, S.moves.title),
    panel("migrations", feeds[0][3]),
    items,
    panel("moves", feeds[1][3]),
    panel("drains", feeds[2][3]),
    panel("runs", feeds[3][3], feeds[4][3]),
    command("clusterspace migrate status", "kubectl --context hub get migrations,clusterstagedupdateruns,stagedupdateruns -A", "kubectl --context hub get resourcebindings -A -o custom-columns=NAME:.metadata.name,LEAVES:.spec.gracefulEvictionTasks[*].fromCluster"),
  );
}
