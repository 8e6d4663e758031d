// One object: template, policy, binding, and how it is in each cluster; its pods, logs, events, YAML,
// and what can be changed of it.

import { actionBar } from "./actions.js";
import { ask, askJson, findKind, follow, HUB, linesOf, pathOf, withQuery } from "./api.js";
import { fill, h } from "./dom.js";
import { age, clusterState, podRow, quoted, splitName, summarize, trouble, yaml } from "./model.js";
import { badge, command, empty, feedNotice, section } from "./parts.js";
import { createStore } from "./store.js";
import { S } from "./strings.js";
import { plainTable } from "./table.js";

const MOST_LINES = 5000;
const BINDINGS = `${HUB}/apis/work.karmada.io/v1alpha2`;

export async function objectScreen(signal, [version, kindName, space, name]) {
  const apiVersion = (version || "").replace(":", "/");
  const namespace = space === "-" ? "" : space;
  const kind = await findKind(kindName || "", apiVersion);
  if (!kind) return h("div", { class: "screen" }, h("h1", {}, name), h("p", { class: "notice bad" }, S.object.noSuchKind(`${apiVersion} ${kindName}`)));
  const { own, cluster } = splitName(name);
  const state = createStore({ object: null, binding: null, clusters: new Map(), pods: new Map(), copies: new Map() });
  const notices = [];
  const watched = (what) => {
    const notice = feedNotice(what);
    notices.push(notice);
    signal.addEventListener("abort", () => notice.stop(), { once: true });
    return notice;
  };

  // The template is the hub's; an object that names a cluster is that cluster's.
  const collection = cluster ? pathOf(kind, namespace) : `${HUB}${pathOf(kind, namespace)}`;
  const objectNotice = watched(S.what.template);
  let podsFollowed = false;
  const seen = (object) => {
    state.update((value) => (value.object = object));
    const labels = object?.spec?.selector?.matchLabels;
    if (labels && !podsFollowed && kind.namespaced) {
      podsFollowed = true;
      followPods(labels);
    }
  };
  follow(collection, {
    signal,
    query: { fieldSelector: `metadata.name=${name}` },
    told: {
      list: (items, warnings) => (seen(items.find((each) => each.metadata.name === name) || null), objectNotice.warnings(warnings)),
      event: (type, object) => object.metadata.name === name && seen(type === "DELETED" ? null : object),
      state: (next) => (objectNotice.state(next), state.update(() => {})),
    },
  });

  if (!cluster) {
    const notice = watched(S.what.bindings);
    const isMine = (each) => {
      const about = each.spec?.resource || {};
      return about.kind === kind.kind && about.name === own && (about.namespace || "") === namespace && (about.apiVersion || "").split("/")[0] === kind.apiVersion.split("/")[0];
    };
    follow(namespace ? `${BINDINGS}/namespaces/${encodeURIComponent(namespace)}/resourcebindings` : `${BINDINGS}/clusterresourcebindings`, {
      signal,
      told: {
        list: (items) => state.update((value) => (value.binding = items.find(isMine) || null)),
        event: (type, object) => isMine(object) && state.update((value) => (value.binding = type === "DELETED" ? null : object)),
        state: (next) => (notice.state(next), state.update(() => {})),
      },
    });
    askJson(`${HUB}/apis/cluster.karmada.io/v1alpha1/clusters`, { signal }).then(
      ({ value }) => state.update((all) => (all.clusters = new Map(value.items.map((each) => [each.metadata.name, each])))),
      () => {}, // how clusters are is said beside their names where it is known
    );
  }

  function followPods(labels) {
    const notice = watched(S.what.pods);
    podNotices.append(notice.node);
    const selector = Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(",");
    const place = cluster ? `${selector},clusterspace.io/cluster=${cluster}` : selector;
    follow(pathOf({ group: "", version: "v1", resource: "pods", namespaced: true }, namespace), {
      signal,
      query: { labelSelector: place },
      told: {
        list: (items, warnings) => (state.update((value) => (value.pods = new Map(items.map((each) => [each.metadata.name, each])))), notice.warnings(warnings)),
        event: (type, pod) => state.update((value) => (type === "DELETED" ? value.pods.delete(pod.metadata.name) : value.pods.set(pod.metadata.name, pod))),
        state: (next) => (notice.state(next), state.update(() => {})),
      },
    });
  }

  const target = { kind, cluster, namespace, own, name, path: `${cluster ? "" : HUB}${pathOf(kind, namespace, name)}` };
  const actions = actionBar(target, () => state.get().object, signal);
  const chain = h("ol", { class: "chain" });
  const changed = h("p", { class: "quiet" });
  const places = h("div");
  const pods = h("div");
  const podNotices = h("div", { class: "body-notices" });
  const podPanel = section(S.object.pods, "pods", podNotices, pods);
  podPanel.hidden = true;
  const logs = h("div");
  const events = h("div");
  const yamlText = h("pre", { tabindex: "0", "aria-label": S.object.yaml, class: "mono" });
  const yamlOf = h("select", { onchange: () => drawYaml() });

  function draw() {
    const now = Date.now();
    const { object, binding, clusters } = state.get();
    const summary = binding ? summarize(binding) : null;
    const isLive = notices.slice(0, 2).every((each) => each.is !== "loading");
    const manager = (object?.metadata?.managedFields || []).filter((each) => each.time).sort((one, other) => (one.time < other.time ? 1 : -1))[0];
    fill(changed, manager ? S.object.changedBy(manager.manager, age(manager.time, now)) : "");
    if (!cluster) {
      const replicas = object?.spec?.replicas;
      fill(
        chain,
        step(S.object.template, object ? [h("strong", {}, `${kind.kind} ${own}`), replicas === undefined ? null : h("p", {}, `${object.status?.readyReplicas ?? 0} of ${replicas} ready`)] : isLive ? S.object.notHere : ""),
        step(S.object.policy, summary?.policy ? [h("strong", {}, summary.policy.name), h("p", { class: "quiet" }, summary.policy.kind)] : isLive ? S.object.noPolicy : ""),
        step(
          S.object.binding,
          summary
            ? [h("strong", {}, summary.name), h("p", {}, verdict(summary.scheduled, S.object.scheduled)), h("p", {}, verdict(summary.applied, S.object.applied))]
            : isLive ? S.object.noBinding : "",
        ),
        step(S.object.places, summary ? summary.places.map((each) => h("p", {}, each.cluster, each.wanted === undefined ? "" : ` × ${each.wanted}`)) : ""),
      );
      if (summary) {
        const rows = summary.places.map((place) => {
          const known = clusters.get(place.cluster);
          const how = known ? clusterState(known) : null;
          const isOld = how && how.is !== "well" && how.is !== "leaving";
          return {
            cells: [
              h("strong", {}, place.cluster),
              how ? badge(how.is, how.is === "well" ? S.state.well : S.since(S.state[how.is], age(how.since, now)), how.why) : "",
              place.reported ? badge(place.applied ? "yes" : "no", place.applied ? S.object.yes : S.object.no) : S.object.unknown,
              place.reported ? badge(place.health === "Healthy" ? "yes" : trouble(place) ? "health" : "plain", place.health) : "",
              [place.ready === undefined || place.wanted === undefined ? "" : `${place.ready}/${place.wanted}`, isOld ? h("span", { class: "quiet" }, ` ${S.object.asOf(age(how.since, now))}`) : null],
              place.message,
            ],
          };
        });
        fill(places, rows.length ? plainTable(S.object.places, S.object.placeColumns, rows, ["", "", "", "", "num", "wrap"]) : empty(S.broken.notScheduled));
      } else fill(places, isLive ? empty(S.object.noBinding) : null);
    }
    actions.draw();
    drawPods(now);
    drawYaml();
  }

  function drawPods(now) {
    podPanel.hidden = !podsFollowed;
    if (!podsFollowed) return;
    const all = [...state.get().pods.values()].map(podRow).filter((each) => each.cluster !== "hub");
    all.sort((one, other) => (`${one.cluster}/${one.own}` < `${other.cluster}/${other.own}` ? -1 : 1));
    const mark = JSON.stringify(all.map((each) => [each, age(each.created, now)]));
    if (pods.dataset.mark === mark) return; // nothing new: what has focus keeps it
    pods.dataset.mark = mark;
    const isKnown = notices.at(-1).is === "live";
    if (!all.length) {
      fill(pods, isKnown ? empty(S.object.noPods) : null);
      return;
    }
    const rows = all.map((pod) => ({
      cells: [pod.own, pod.cluster, badge(pod.status === "Running" || pod.status === "Succeeded" ? "yes" : "health", pod.status), pod.ready, String(pod.restarts), pod.node, age(pod.created, now), h("button", { type: "button", class: "small", "aria-label": S.object.logOf(pod.own), onclick: () => showLog(pod) }, S.object.log)],
    }));
    fill(pods, plainTable(S.object.pods, S.object.podColumns, rows, ["", "", "", "num", "num", "", "num", ""]));
  }

  let drawnOptions = "";
  function drawYaml() {
    const { object, binding, copies } = state.get();
    const names = cluster ? [] : (binding ? summarize(binding).places : []).map((each) => each.cluster);
    if (drawnOptions !== names.join()) {
      drawnOptions = names.join();
      const chosen = yamlOf.value;
      fill(yamlOf, [["", cluster || S.object.hub], ...names.map((each) => [each, each])].map(([value, text]) => h("option", { value }, text)));
      yamlOf.value = names.includes(chosen) ? chosen : "";
    }
    const where = yamlOf.value;
    if (where && !copies.has(where)) {
      copies.set(where, { loading: true });
      askJson(pathOf(kind, namespace, `${own}.clusterspace.${where}`), { signal }).then(
        ({ value }) => state.update((all) => all.copies.set(where, { value })),
        (error) => state.update((all) => all.copies.set(where, { error })),
      );
    }
    const copy = where ? copies.get(where) : { value: object };
    const shown = copy.value && { apiVersion: kind.apiVersion, kind: kind.kind, ...copy.value, metadata: { ...copy.value.metadata, managedFields: undefined } };
    if (shown) delete shown.metadata.managedFields;
    const text = shown ? `${yaml(shown)}\n` : copy.error ? S.failed(copy.error.message) : copy.loading ? S.feed.loading(where) : "";
    if (yamlText.textContent !== text) yamlText.textContent = text;
  }

  let logging = new AbortController();
  function showLog(pod, container = pod.containers[0]) {
    logging.abort();
    logging = new AbortController();
    const mine = logging;
    signal.addEventListener("abort", () => mine.abort(), { once: true });
    const notice = h("p", { class: "quiet body", role: "status" }, S.feed.loading(S.what.log));
    const text = h("pre", { class: "log", tabindex: "0", "aria-label": S.object.logOf(pod.own) });
    const isFollowed = h("input", { type: "checkbox", checked: true });
    const choose = h("select", { "aria-label": S.object.container, onchange: () => showLog(pod, choose.value) }, pod.containers.map((each) => h("option", { value: each, selected: each === container }, each)));
    const title = h("h2", { id: "log", tabindex: "-1" }, `${S.object.logOf(pod.own)} · ${pod.cluster}`);
    fill(
      logs,
      h("section", { class: "panel", "aria-labelledby": "log" }, h("div", { class: "head" }, title, pod.containers.length > 1 ? choose : null, h("label", {}, isFollowed, " ", S.object.follow), h("button", { type: "button", class: "small", onclick: () => (mine.abort(), fill(logs)) }, S.close)), notice, text),
      command(`kubectl logs -n ${quoted(namespace)} ${quoted(pod.name)} -c ${quoted(container)} -f --tail=500`),
    );
    title.focus();
    readLog(pod, container, mine.signal, notice, text, isFollowed);
  }

  async function readLog(pod, container, ended, notice, text, isFollowed) {
    const path = pathOf({ group: "", version: "v1", resource: "pods", namespaced: true }, namespace, pod.name);
    const slow = setTimeout(() => fill(notice, S.feed.slow(S.what.log, 2)), 2000);
    let lines = [];
    let isDue = false;
    const drawLines = () => {
      isDue = false;
      text.textContent = lines.join("\n");
      if (isFollowed.checked) text.scrollTop = text.scrollHeight;
    };
    try {
      const response = await ask(withQuery(`${path}/log`, { container, follow: "true", tailLines: "500" }), { signal: ended, headers: { Accept: "*/*" } });
      clearTimeout(slow);
      fill(notice, S.object.logEmpty);
      for await (const line of linesOf(response)) {
        notice.hidden = true;
        lines.push(line);
        if (lines.length > MOST_LINES) {
          lines = lines.slice(-MOST_LINES / 2);
          notice.hidden = false;
          fill(notice, S.object.logCut(MOST_LINES));
        }
        if (!isDue) {
          isDue = true;
          requestAnimationFrame(drawLines);
        }
      }
      notice.hidden = false;
      fill(notice, S.object.logEnded);
    } catch (error) {
      if (ended.aborted) return;
      notice.hidden = false;
      notice.className = "notice bad";
      fill(notice, S.failed(error.message));
    } finally {
      clearTimeout(slow);
    }
  }

  async function showEvents() {
    const notice = feedNotice(S.what.events);
    signal.addEventListener("abort", () => notice.stop(), { once: true });
    fill(events, notice.node);
    const place = namespace || "default";
    try {
      const path = `/api/v1/namespaces/${encodeURIComponent(place)}/events`;
      const label = cluster ? { labelSelector: `clusterspace.io/cluster=${cluster}` } : {};
      const { value, warnings } = await askJson(withQuery(path, { ...label, fieldSelector: `involvedObject.kind=${kind.kind}`, limit: "500" }), { signal });
      notice.state({ is: "live", since: Date.now() });
      notice.warnings(warnings);
      const now = Date.now();
      const when = (each) => each.lastTimestamp || each.eventTime || each.metadata.creationTimestamp;
      const found = value.items.filter((each) => splitName(each.involvedObject?.name || "").own === own);
      found.sort((one, other) => (when(one) < when(other) ? 1 : -1));
      const rows = found.slice(0, 100).map((each) => ({ cells: [age(when(each), now), each.type || "", each.reason || "", splitName(each.metadata.name).cluster || S.object.hub, each.message || each.note || ""] }));
      fill(events, notice.node, rows.length ? plainTable(S.object.events, S.object.eventColumns, rows, ["num", "", "", "", "wrap"]) : empty(S.object.noEvents));
    } catch (error) {
      if (!signal.aborted) notice.state({ is: "refused", since: Date.now(), why: error.message });
    }
  }

  state.subscribe(draw);
  const clock = setInterval(draw, 10_000);
  signal.addEventListener("abort", () => clearInterval(clock), { once: true });
  showEvents();
  const where = namespace ? ` -n ${quoted(namespace)}` : "";
  const resource = kind.group ? `${kind.resource}.${kind.group}` : kind.resource;
  const asked = [`kubectl get ${resource} ${quoted(name)}${where} -o yaml`];
  if (!cluster) asked.unshift(`clusterspace why ${kind.kind.toLowerCase()}/${quoted(own)}${where}`);
  return h(
    "div",
    { class: "screen" },
    h("h1", {}, `${kind.kind} ${namespace ? `${namespace}/` : ""}${own}`, cluster ? ` · ${cluster}` : ""),
    notices.map((each) => each.node),
    changed,
    actions.node,
    command(...asked),
    cluster ? null : section(S.object.why, "why", chain),
    cluster ? null : section(S.object.places, "places", places),
    podPanel,
    logs,
    section(S.object.events, "events", events),
    section(S.object.yaml, "yaml", h("div", { class: "tools" }, h("label", {}, S.object.yamlOf, " ", yamlOf)), yamlText),
  );
}

function step(title, content) {
  return h("li", {}, h("span", { class: "step" }, title), h("div", {}, content));
}

function verdict(found, word) {
  if (!found) return "";
  const is = found.status === "True";
  return [badge(is ? "yes" : "no", word, found.message), is ? null : ` ${found.message || found.reason || ""}`];
}
