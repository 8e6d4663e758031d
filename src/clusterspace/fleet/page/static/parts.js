// What several screens have: how a feed is, what is missing, a bar, a command to copy.

import { fill, h, sized } from "./dom.js";
import { age } from "./model.js";
import { S } from "./strings.js";

const SENTENCE_AFTER = 2000;

/** A place that says how a feed is: nothing while all is well, a sentence when it is not. */
export function feedNotice(what) {
  return feedNotices([what])[0];
}

/** The same for several feeds in one place: what is wrong with all of them for the same reason is one sentence. */
export function feedNotices(whats) {
  const node = h("div", { class: "notices", role: "status" });
  const feeds = whats.map((what) => ({ what, state: { is: "loading", since: Date.now() }, warnings: [] }));
  let timer = 0;

  function draw() {
    clearTimeout(timer);
    const now = Date.now();
    const said = [];
    let next = Infinity;
    const wrong = feeds.filter(({ state }) => state.is !== "live");
    for (const group of Map.groupBy(wrong, ({ state }) => `${state.is} ${state.why || ""}`).values()) {
      const { is, why } = group[0].state;
      const since = Math.min(...group.map((each) => each.state.since));
      const what = S.feed.all(group.map((each) => each.what));
      const waited = now - since;
      if (is === "loading") {
        said.push(h("p", { class: "quiet" }, waited < SENTENCE_AFTER ? S.feed.loading(what) : S.feed.slow(what, Math.round(waited / 1000))));
        next = Math.min(next, waited < SENTENCE_AFTER ? SENTENCE_AFTER - waited : 1000);
      }
      if (is === "lost") {
        said.push(h("p", { class: "notice bad" }, S.feed.lost(what, age(since, now), why)));
        next = Math.min(next, 1000);
      }
      if (is === "refused") said.push(h("p", { class: "notice bad" }, S.feed.refused(what, why)));
    }
    if (next < Infinity) timer = setTimeout(draw, next);
    const warnings = [...new Set(feeds.flatMap((each) => each.warnings))];
    if (warnings.length) said.push(h("div", { class: "notice warn" }, h("strong", {}, S.feed.partial), h("ul", {}, warnings.map((each) => h("li", {}, each)))));
    fill(node, said);
  }

  draw();
  return feeds.map((feed) => ({
    node,
    state(next) {
      feed.state = next;
      draw();
    },
    warnings(next) {
      feed.warnings = next;
      draw();
    },
    get is() {
      return feed.state.is;
    },
    stop() {
      clearTimeout(timer);
    },
  }));
}

/** A word with a mark: the mark has a shape of its own, for those who see no colours. */
export function badge(is, text, why = "") {
  return h("span", { class: `badge ${is}`, title: why || null }, text);
}

/** How much is asked for, as a bar with its number. */
export function bar(use) {
  if (!use) return h("span", { class: "quiet" }, S.clusters.unknown);
  const percent = Math.round(use.share * 100);
  const level = percent >= 90 ? "high" : percent >= 70 ? "mid" : "low";
  const inner = sized(h("span", { class: "fill" }), "width", `${Math.min(100, percent)}%`);
  return h("span", { class: "use", title: S.clusters.share(percent, use.total) }, h("span", { class: `bar ${level}`, "aria-hidden": "true" }, inner), h("span", { class: "number" }, `${percent}%`), h("span", { class: "of" }, ` of ${use.total}`));
}

/** The command that shows the same, to copy. */
export function command(...lines) {
  const text = lines.join("\n");
  const button = h("button", { type: "button", class: "small", onclick: copy }, S.copy);
  async function copy() {
    await navigator.clipboard.writeText(text);
    button.textContent = S.copied;
    setTimeout(() => (button.textContent = S.copy), 1500);
  }
  return h("div", { class: "command", role: "group", "aria-label": S.kubectl }, h("span", { class: "quiet" }, S.kubectl), h("code", {}, text), button);
}

/** What to say where there is nothing, and what to do next. */
export function empty(text, next = "") {
  return h("p", { class: "empty" }, text, next ? [" ", h("code", {}, next)] : null);
}

export function section(title, id, ...children) {
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}
