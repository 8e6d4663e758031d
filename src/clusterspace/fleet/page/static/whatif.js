// What a policy would do, before it is written: which clusters would get what, and why the others not.

import { ask, askJson, HUB, withQuery } from "./api.js";
import { fill, h } from "./dom.js";
import { yaml } from "./model.js";
import { badge, command, empty, feedNotice } from "./parts.js";
import { S } from "./strings.js";
import { plainTable } from "./table.js";

const POLICIES = `${HUB}/apis/policy.karmada.io/v1alpha1`;
const KINDS = { PropagationPolicy: "propagationpolicies", ClusterPropagationPolicy: "clusterpropagationpolicies" };
const EXAMPLE = {
  apiVersion: "policy.karmada.io/v1alpha1",
  kind: "PropagationPolicy",
  metadata: { name: "web", namespace: "default" },
  spec: { resourceSelectors: [{ apiVersion: "apps/v1", kind: "Deployment", name: "web" }], placement: { clusterAffinity: { clusterNames: ["member1"] } } },
};

/** Where a policy is tried. */
export function whatIfAddress({ kind, namespace, name }) {
  return withQuery("/whatif", { kind, namespace, name });
}

const pathTo = ({ kind, namespace = "", name = "" }) => `${POLICIES}${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ""}/${KINDS[kind]}${name ? `/${encodeURIComponent(name)}` : ""}`;

export async function whatIfScreen(signal, query) {
  const given = { kind: query.get("kind") || "", namespace: query.get("namespace") || "", name: query.get("name") || "" };
  const results = h("div", { role: "status" });
  const said = h("div");
  const text = h("textarea", { id: "policy", class: "mono", rows: "16", spellcheck: "false", autocomplete: "off", autocapitalize: "off", required: true, "data-find": true, value: `${yaml(EXAMPLE)}\n` });
  const choose = h("select", { id: "which", onchange: () => choose.value && (location.hash = `#${choose.value}`) }, h("option", { value: "" }, S.whatIf.own));
  const form = h(
    "form",
    { class: "try", onsubmit: (event) => (event.preventDefault(), tryIt()), oninput: () => fill(results) },
    h("div", { class: "row" }, h("label", { for: "which" }, S.whatIf.which, " ", choose)),
    h("label", { for: "policy" }, S.whatIf.policy),
    text,
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, S.whatIf.submit)),
  );

  async function tryIt() {
    const notice = feedNotice(S.what.simulation);
    signal.addEventListener("abort", () => notice.stop(), { once: true });
    fill(results, notice.node);
    try {
      const response = await ask("/ui/simulation", { method: "POST", text: text.value, signal, headers: { "Content-Type": "application/yaml" } });
      const { previews } = await response.json();
      notice.stop();
      fill(results, previews.length ? previews.map(previewPanel) : empty(S.whatIf.nothing), command("clusterspace simulate policy.yaml", "kubectl --context hub apply -f policy.yaml"));
    } catch (error) {
      notice.stop();
      if (!signal.aborted) fill(results, h("p", { class: "notice bad", role: "alert" }, S.failed(error.message)));
    }
  }

  function previewPanel(preview, at) {
    const { kind, namespace, name, outcome, before, after, why, others } = preview;
    const places = [...new Set([...Object.keys(after), ...Object.keys(before)])].sort();
    const count = (counts, each) => (each in counts ? (counts[each] ? String(counts[each]) : S.whatIf.whole) : S.whatIf.none);
    const reasons = new Map(others.map((each) => [each.cluster, each]));
    const rows = [
      ...places.map((each) => ({ cells: [h("strong", {}, each), count(before, each), badge(each in after ? "yes" : "no", count(after, each)), reasons.get(each)?.filter || "", reasons.get(each)?.reason || ""] })),
      ...others.filter((each) => !places.includes(each.cluster)).map((each) => ({ cells: [each.cluster, S.whatIf.none, badge("plain", S.whatIf.none), each.filter, each.reason] })),
    ];
    const id = `tried-${at}`;
    const title = `${kind} ${namespace ? `${namespace}/` : ""}${name}`;
    return h(
      "section",
      { class: "panel", "aria-labelledby": id },
      h("div", { class: "head" }, h("h2", { id }, title), badge(outcome === "placed" ? "yes" : "health", S.whatIf.outcomes[outcome] || outcome), why ? h("span", {}, why) : null),
      rows.length ? plainTable(title, S.whatIf.columns, rows, ["", "num", "", "", "wrap"]) : empty(why || S.whatIf.nothing),
    );
  }

  /** The policies there are, to begin with; who may not list them writes their own. */
  async function offer() {
    const found = [];
    for (const kind of Object.keys(KINDS)) {
      try {
        const { value } = await askJson(withQuery(pathTo({ kind }), { limit: "500" }), { signal });
        found.push(...value.items.map(({ metadata }) => ({ kind, namespace: metadata.namespace || "", name: metadata.name })));
      } catch {
        continue;
      }
    }
    choose.append(...found.map((each) => h("option", { value: whatIfAddress(each), selected: each.kind === given.kind && each.namespace === given.namespace && each.name === given.name }, `${each.kind} ${each.namespace ? `${each.namespace}/` : ""}${each.name}`)));
  }

  if (Object.hasOwn(KINDS, given.kind) && given.name) {
    try {
      const { value } = await askJson(pathTo(given), { signal });
      const { managedFields, resourceVersion, uid, creationTimestamp, generation, ...metadata } = value.metadata;
      text.value = `${yaml({ apiVersion: EXAMPLE.apiVersion, kind: given.kind, metadata, spec: value.spec })}\n`;
    } catch (error) {
      fill(said, h("p", { class: "notice bad", role: "alert" }, S.failed(error.message)));
    }
  }
  offer();
  return h("div", { class: "screen" }, h("h1", {}, S.whatIf.title), h("p", { class: "quiet" }, S.whatIf.lead), said, h("section", { class: "panel", "aria-label": S.whatIf.policy }, form), results);
}
