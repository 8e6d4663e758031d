// Search every cluster by kind, name, labels and fields. The address is the search.

import { allKinds, askJson, findKind, pathOf, withQuery } from "./api.js";
import { fill, h, link } from "./dom.js";
import { objectAddress } from "./fleet.js";
import { age, quoted, splitName } from "./model.js";
import { command, empty, feedNotice } from "./parts.js";
import { S } from "./strings.js";
import { VirtualTable } from "./table.js";

const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PAGE_SIZE = 500;
const FIELDS = ["kind", "name", "namespace", "labels", "fields"];

export async function searchScreen(signal, query) {
  const given = Object.fromEntries(FIELDS.map((each) => [each, query.get(each) || ""]));
  const results = h("div");
  const kinds = h("datalist", { id: "kinds" });
  const inputs = Object.fromEntries(
    FIELDS.map((each) => [each, h("input", { type: "text", id: `find-${each}`, value: given[each], autocomplete: "off", spellcheck: "false", autocapitalize: "off", list: each === "kind" ? "kinds" : null, placeholder: { labels: S.find.labelsHint, fields: S.find.fieldsHint, kind: "pods" }[each] || null, required: each === "kind", "data-find": each === "kind" ? true : null })]),
  );
  const form = h(
    "form",
    {
      class: "find",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        const asked = new URLSearchParams(FIELDS.map((each) => [each, inputs[each].value.trim()]).filter(([, value]) => value));
        const address = `#/search?${asked}`;
        if (location.hash === address) search();
        else location.hash = address;
      },
    },
    FIELDS.map((each) => h("label", { for: `find-${each}` }, S.find[each], inputs[each])),
    h("button", { type: "submit", class: "main" }, S.find.submit),
  );
  allKinds().then(
    (all) => fill(kinds, all.filter((each) => each.verbs.includes("list")).map((each) => h("option", { value: each.group ? `${each.resource}.${each.group}` : each.resource }, each.kind))),
    () => {}, // without the list of kinds one can still be typed
  );

  async function search() {
    const notice = feedNotice(S.what.results);
    signal.addEventListener("abort", () => notice.stop(), { once: true });
    fill(results, notice.node);
    try {
      const kind = await findKind(given.kind);
      if (!kind) {
        notice.state({ is: "live", since: Date.now() });
        fill(results, h("p", { class: "notice bad" }, S.find.unknownKind(given.kind)));
        return;
      }
      await showKind(kind, notice);
    } catch (error) {
      if (!signal.aborted) notice.state({ is: "refused", since: Date.now(), why: error.message });
    }
  }

  async function showKind(kind, notice) {
    const table = new VirtualTable();
    const count = h("span", { class: "count", role: "status" });
    const more = h("button", { type: "button", hidden: true, onclick: () => load() }, S.find.more);
    const none = h("div");
    const rows = [];
    const warnings = [];
    let token = "";
    let isDescribed = false;
    const path = pathOf(kind, given.namespace);
    const asked = { labelSelector: given.labels, fieldSelector: given.fields };

    async function load() {
      const isAskedHere = document.activeElement === more;
      more.disabled = true;
      const { value, warnings: said } = await askJson(withQuery(path, { ...asked, limit: PAGE_SIZE, continue: token }), { headers: { Accept: TABLE }, signal });
      notice.state({ is: "live", since: Date.now() });
      for (const each of said) if (!warnings.includes(each)) warnings.push(each);
      notice.warnings(warnings);
      token = value.metadata?.continue || "";
      const all = value.columnDefinitions || [];
      const shown = all.map((each, at) => ({ ...each, at })).filter((each) => !each.priority && each.name.toLowerCase() !== "cluster" && each.at !== 0);
      if (!isDescribed) {
        isDescribed = true;
        const columns = ["Cluster", ...(kind.namespaced ? ["Namespace"] : []), "Name", ...shown.map((each) => each.name)];
        table.describe(S.search, columns, columns.map(() => ""));
      }
      const now = Date.now();
      for (const row of value.rows || []) {
        const metadata = row.object?.metadata || {};
        const { own, cluster } = splitName(metadata.name || "");
        if (given.name && !own.toLowerCase().includes(given.name.toLowerCase())) continue;
        const address = objectAddress({ apiVersion: kind.apiVersion, kind: kind.kind, namespace: metadata.namespace || "", name: metadata.name || "" });
        const cells = shown.map((each) => (each.type === "date" && row.cells[each.at] ? age(row.cells[each.at], now) || String(row.cells[each.at]) : String(row.cells[each.at] ?? "")));
        rows.push({
          key: `${cluster}/${metadata.namespace}/${own}`,
          mark: "",
          draw: () =>
            h("tr", {}, h("td", {}, cluster || S.object.hub), kind.namespaced ? h("td", {}, splitName(metadata.namespace || "").own) : null, h("th", { scope: "row", class: "name" }, link(address, own)), cells.map((each) => h("td", { class: "cell", title: each }, each))),
        });
      }
      table.rows = rows;
      table.hidden = !rows.length;
      more.hidden = !token;
      more.disabled = false;
      if (isAskedHere) (more.hidden ? table.querySelector(".scroll") : more)?.focus();
      count.textContent = [S.find.count(rows.length, Boolean(token)), given.name && token ? S.find.nameOnPage : ""].filter(Boolean).join(". ");
      // What was not answered for is not nothing: a notice above says who is missing.
      fill(none, rows.length ? null : empty(S.find.none, ""), rows.length ? null : h("p", { class: "empty" }, S.find.noneNext));
    }

    await load();
    const resource = kind.group ? `${kind.resource}.${kind.group}` : kind.resource;
    const words = ["kubectl get", resource, kind.namespaced ? (given.namespace ? `-n ${quoted(given.namespace)}` : "-A") : "", given.labels ? `-l ${quoted(given.labels)}` : "", given.fields ? `--field-selector ${quoted(given.fields)}` : "", given.name ? `| grep ${quoted(given.name)}` : ""];
    fill(results, notice.node, h("section", { class: "panel", "aria-labelledby": "found" }, h("div", { class: "head" }, h("h2", { id: "found" }, resource), count), table, none), more, command(words.filter(Boolean).join(" ")));
  }

  if (given.kind) search();
  else fill(results, h("p", { class: "quiet" }, S.find.intro));
  return h("div", { class: "screen" }, h("h1", {}, S.search), h("section", { class: "panel", "aria-label": S.search }, form, kinds), results);
}
