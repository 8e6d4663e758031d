// One object: template, policy, binding, and how it is in each cluster; its pods, logs, events, YAML,
// and what can be changed of it.

import { actionBar, isAllowed } from "./actions.js";
import { askJson, findKind, follow, HUB, pathOf, withQuery } from "./api.js";
import { differingFields, grouped, lastChange, versionOf } from "./differences.js";
import { fill, h, isFocusLost, link } from "./dom.js";
import { logPanel } from "./logs.js";
import { age, clusterState, forwards, podRow, quoted, splitName, summarize, trouble, yaml } from "./model.js";
import { badge, command, empty, feedNotice, section } from "./parts.js";
import { getSeveral, MOST_AT_ONCE } from "./several.js";
import { session } from "./session.js";
import { shellPanel } from "./shell.js";
import { createStore } from "./store.js";
import { S } from "./strings.js";
import { plainTable } from "./table.js";
import { whatIfAddress } from "./whatif.js";

const MOST_FIELDS = 200;
/** In how many clusters its user is asked for, to know whether a shell would be refused there. */
const MOST_ASKED = 30;
const POD_KIND = { group: "", version: "v1", resource: "pods", namespaced: true };
const BINDINGS = `${HUB}/apis/work.karmada.io/v1alpha2`;

export async function objectScreen(signal, [version, kindName, space, name]) {
  const apiVersion = (version || "").replace(":", "/");
  const namespace = space === "-" ? "" : space;
  const kind = await findKind(kindName || "", apiVersion);
  if (!kind) return h("div", { class: "screen" }, h("h1", {}, name), h("p", { class: "notice bad" }, S.object.noSuchKind(`${apiVersion} ${kindName}`)));
  const { own, cluster } = splitName(name);
  /** @type {{object: any, binding: any, clusters: Map<string, any>, pods: Map<string, any>, copies: Map<string, any>, answers: Map<string, any>}} */
  const known = { object: null, binding: null, clusters: new Map(), pods: new Map(), copies: new Map(), answers: new Map() };
  const state = createStore(known);
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
  /** @type {ReturnType<typeof logPanel>} */
  let logs;
  const seen = (object) => {
    state.update((value) => (value.object = object));
    if (kind.kind === "Pod" && !kind.group && cluster) {
      if (!podsFollowed) {
        podsFollowed = true;
        logs = logPanel(namespace, "", signal);
        fill(logPlace, logs.node);
      }
      state.update((value) => (value.pods = new Map(object ? [[name, object]] : [])));
      return;
    }
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
    logs = logPanel(namespace, place, signal);
    fill(logPlace, logs.node);
    follow(pathOf(POD_KIND, namespace), {
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
  const logPlace = h("div");
  const shells = shellPanel(namespace, signal);
  const mayEnter = new Map();
  const reach = h("div");
  const podPanel = section(S.object.pods, "pods", podNotices, pods, reach);
  podPanel.querySelector("h2").setAttribute("tabindex", "-1");
  podPanel.hidden = true;
  const differs = h("div");
  const differPanel = section(S.differ.title, "differs", differs);
  differPanel.hidden = true;
  const events = h("div");
  const yamlText = h("pre", { role: "group", tabindex: "0", "aria-label": S.object.yaml, class: "mono" });
  const yamlOf = h("select", { onchange: () => drawYaml() });

  function draw() {
    const now = Date.now();
    const { object, binding, clusters, answers } = state.get();
    const summary = binding ? summarize(binding) : null;
    const isLive = notices.slice(0, 2).every((each) => each.is !== "loading");
    const last = lastChange(object);
    fill(changed, last ? S.object.changedBy(last.manager, age(last.time, now)) : "");
    if (!cluster) {
      const replicas = object?.spec?.replicas;
      fill(
        chain,
        step(S.object.template, object ? [h("strong", {}, `${kind.kind} ${own}`), replicas === undefined ? null : h("p", {}, `${object.status?.readyReplicas ?? 0} of ${replicas} ready`)] : isLive ? S.object.notHere : ""),
        step(S.object.policy, summary?.policy ? [h("strong", {}, summary.policy.name), h("p", { class: "quiet" }, summary.policy.kind), h("p", {}, link(whatIfAddress(summary.policy), S.whatIf.of))] : isLive ? S.object.noPolicy : ""),
        step(
          S.object.binding,
          summary
            ? [h("strong", {}, summary.name), h("p", {}, verdict(summary.scheduled, S.object.scheduled)), h("p", {}, verdict(summary.applied, S.object.applied))]
            : isLive ? S.object.noBinding : "",
        ),
        step(S.object.places, summary ? summary.places.map((each) => h("p", {}, each.cluster, each.wanted === undefined ? "" : ` × ${each.wanted}`)) : ""),
      );
      if (summary) {
        offerComparison(summary.places.map((each) => each.cluster).sort());
        const rows = summary.places.map((place) => {
          const known = clusters.get(place.cluster);
          const how = known ? clusterState(known) : null;
          const by = lastChange(answers.get(place.cluster)?.value);
          const isOld = how && how.is !== "well" && how.is !== "leaving";
          return {
            cells: [
              h("strong", {}, place.cluster),
              how ? badge(how.is, how.is === "well" ? S.state.well : S.since(S.state[how.is], age(how.since, now)), how.why) : "",
              place.reported ? badge(place.applied ? "yes" : "no", place.applied ? S.object.yes : S.object.no) : S.object.unknown,
              place.reported ? badge(place.health === "Healthy" ? "yes" : trouble(place) ? "health" : "plain", place.health) : "",
              [place.ready === undefined || place.wanted === undefined ? "" : `${place.ready}/${place.wanted}`, isOld ? h("span", { class: "quiet" }, ` ${S.object.asOf(age(how.since, now))}`) : null],
              by ? h("span", { title: by.time }, `${by.manager}, ${age(by.time, now)}`) : "",
              place.message,
            ],
          };
        });
        fill(places, rows.length ? plainTable(S.object.places, S.object.placeColumns, rows, ["", "", "", "", "num", "", "wrap"]) : empty(S.broken.notScheduled));
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
    askForShells([...new Set(all.map((each) => each.cluster))]);
    const canEnter = (pod) => session.get()?.readOnly === false && mayEnter.get(pod.cluster) === true && pod.status === "Running";
    const mark = JSON.stringify(all.map((each) => [each, age(each.created, now), canEnter(each)]));
    if (pods.dataset.mark === mark) return; // nothing new: what has focus keeps it
    pods.dataset.mark = mark;
    const isKnown = notices.at(-1).is === "live";
    if (!all.length) {
      fill(pods, isKnown ? empty(S.object.noPods) : null);
      fill(reach);
      return;
    }
    const rows = all.map((pod) => ({
      cells: [pod.own, pod.cluster, badge(pod.status === "Running" || pod.status === "Succeeded" ? "yes" : "health", pod.status), pod.ready, String(pod.restarts), pod.node, age(pod.created, now), [h("button", { type: "button", class: "small", "aria-label": S.object.logOf(pod.own), onclick: () => logs.show([pod]) }, S.object.log), canEnter(pod) ? [" ", h("button", { type: "button", class: "small", "aria-label": S.shell.in(pod.own), onclick: () => shells.show(pod) }, S.shell.open)] : null]],
    }));
    const every = all.length > 1 ? h("div", { class: "tools" }, h("button", { type: "button", class: "small", onclick: () => logs.show(all) }, S.object.logsOf(all.length))) : null;
    fill(pods, plainTable(S.object.pods, S.object.podColumns, rows, ["", "", "", "num", "num", "", "num", ""]), every);
    const first = all.find((each) => each.status === "Running") || all[0];
    fill(reach, command(...forwards(first.name, namespace, first.ports), `kubectl exec -it -n ${quoted(namespace)} ${quoted(first.name)} -- sh`));
  }

  /** Find out in which clusters a shell would be refused; who cannot be asked says no. */
  function askForShells(clusters) {
    for (const each of clusters.filter((name) => !mayEnter.has(name)).slice(0, MOST_ASKED - mayEnter.size)) {
      mayEnter.set(each, null);
      isAllowed({ kind: POD_KIND, cluster: each, namespace, own: "" }, "create", "exec", signal).then((is) => {
        mayEnter.set(each, is);
        if (is) actions.offer(S.shell.verb, podPanel.querySelector("h2"));
        state.update(() => {});
      });
    }
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

  // -- the same object in every cluster, compared ---------------------------------------------------

  let compared = "";
  /** Ask the clusters that have the object for it; of many only when somebody wants to know. */
  async function compare(names) {
    const now = Date.now();
    const waiting = h("p", { class: "quiet body", role: "status" }, S.differ.asking(names.length));
    const isAskedHere = differs.contains(document.activeElement);
    fill(differs, waiting);
    let done = 0;
    const slow = setTimeout(() => fill(waiting, S.differ.answered(done, names.length)), 2000);
    try {
      const found = await getSeveral(names.map((each) => `/clusterspaces/${encodeURIComponent(each)}${pathOf(kind, namespace, own)}`), signal, (count) => (done = count));
      const answers = new Map(names.map((each, at) => [each, found[at]]));
      state.update((all) => (all.answers = answers));
      drawDiffers(answers, now);
    } catch (error) {
      if (!signal.aborted) fill(differs, h("p", { class: "notice bad" }, S.failed(error.message)), again(names));
    } finally {
      clearTimeout(slow);
      if (isAskedHere && isFocusLost()) differs.querySelector("button")?.focus();
    }
  }
  const again = (names) => h("div", { class: "body" }, h("button", { type: "button", onclick: () => compare(names) }, compared ? S.differ.again : S.differ.compare(names.length)));

  function offerComparison(names) {
    if (!names.length || compared === names.join()) return;
    compared = names.length > MOST_AT_ONCE ? "" : names.join();
    differPanel.hidden = false;
    if (compared) compare(names);
    else fill(differs, again(names));
  }

  function drawDiffers(answers, asked) {
    const names = [...answers.keys()];
    const there = [...answers].filter(([, each]) => each.value).map(([name, each]) => [name, each.value]);
    const absent = names.filter((each) => answers.get(each).missing);
    const unheard = [...answers].filter(([, each]) => each.why);
    const { object } = state.get();
    const versions = grouped(there.map(([name, each]) => [name, versionOf(each)]));
    const places = new Map(there.map(([name, each]) => [name, { kind: kind.kind, ...each }]));
    if (object) places.set(S.object.hub, { kind: kind.kind, ...object });
    const fields = there.length ? differingFields(places, S.object.hub) : [];
    const rows = fields.slice(0, MOST_FIELDS).map(({ path, hidden, groups }) => ({
      cells: [h("code", {}, path), h("ul", { class: "values" }, groups.map((each) => h("li", {}, h("code", {}, hidden ? S.differ.hidden : each.value || S.differ.nothing), " ", h("span", { class: "quiet" }, S.differ.in(each.places)))))],
    }));
    fill(
      differs,
      unheard.length ? h("div", { class: "notice warn" }, h("strong", {}, S.feed.partial), h("ul", {}, unheard.map(([name, each]) => h("li", {}, `${name}: ${each.why.replace(`cluster ${name}: `, "")}`)))) : null,
      h("p", { class: "body" }, versions.length && versions[0].value ? h("strong", {}, S.differ.summary(versions)) : null, absent.length ? ` ${S.differ.absent(absent)}` : null),
      !there.length ? empty(S.differ.nobody) : rows.length ? plainTable(S.differ.title, S.differ.columns, rows, ["wrap", "wrap"]) : empty(S.differ.none),
      fields.length > MOST_FIELDS ? h("p", { class: "quiet body" }, S.differ.more(fields.length - MOST_FIELDS)) : null,
      h("div", { class: "tools" }, h("span", { class: "quiet" }, S.differ.asOf(new Date(asked).toLocaleTimeString())), h("button", { type: "button", class: "small", onclick: () => compare(names) }, S.differ.again)),
      command(`clusterspace diff ${kind.kind.toLowerCase()}/${quoted(own)}${namespace ? ` -n ${quoted(namespace)}` : ""} --by version`),
    );
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
      fill(events, notice.node, rows.length ? plainTable(S.object.events, S.object.eventColumns, rows, ["num", "", "", "", "wrap"]) : empty(warnings.length ? S.object.noEventsHeard : S.object.noEvents));
    } catch (error) {
      if (!signal.aborted) notice.state({ is: "refused", since: Date.now(), why: error.message });
    }
  }

  state.subscribe(draw);
  const leave = session.subscribe(draw);
  signal.addEventListener("abort", leave, { once: true });
  const clock = setInterval(draw, 10_000);
  signal.addEventListener("abort", () => clearInterval(clock), { once: true });
  showEvents();
  const where = namespace ? ` -n ${quoted(namespace)}` : "";
  const resource = kind.group ? `${kind.resource}.${kind.group}` : kind.resource;
  const asked = [`kubectl get ${resource} ${quoted(name)}${where} -o yaml`];
  if (cluster && kind.kind === "Service" && !kind.group) asked.push(...forwards(`svc/${name}`, namespace, []));
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
    differPanel,
    podPanel,
    logPlace,
    shells.node,
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
