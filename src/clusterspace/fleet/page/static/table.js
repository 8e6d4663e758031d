// Tables: a plain one, and one that draws only the rows that can be seen.

import { fill, h, sized } from "./dom.js";

const ROW_HEIGHT = 34;
const BEYOND = 8;

/** A table of few rows. `rows` are {key, cells}; cells are texts or nodes. */
export function plainTable(label, columns, rows, classes = []) {
  return h(
    "div",
    { class: "scroll plain", tabindex: "0", role: "group", "aria-label": label },
    h(
      "table",
      { "aria-label": label },
      h("thead", {}, h("tr", {}, columns.map((each, at) => heading(each, classes[at])))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.cells.map((each, at) => h("td", { class: classes[at] || null }, each))))),
    ),
  );
}

function heading(text, name) {
  // A column without a name is one of buttons: it is no heading to anybody.
  return text ? h("th", { scope: "col", class: name || null }, text) : h("td", { class: name || null });
}

/**
 * A table of any number of rows, of which those in sight are in the document.
 *
 * Rows are {key, mark, draw}: a row is drawn again only when its mark has changed, so that focus and
 * selection stay where they are while others change.
 */
export class VirtualTable extends HTMLElement {
  #rows = [];
  #drawn = new Map();
  #body = h("tbody");
  #above = h("tr", { class: "space", "aria-hidden": "true" });
  #below = h("tr", { class: "space", "aria-hidden": "true" });
  #table = h("table");
  #scroll = h("div");

  /** Say what the table is about. Called once, before rows. */
  describe(label, columns, classes) {
    this.#table = h(
      "table",
      { "aria-label": label },
      h("thead", {}, h("tr", { "aria-rowindex": "1" }, columns.map((each, at) => heading(each, classes[at])))),
      this.#body,
    );
    this.#scroll = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label, onscroll: () => this.#draw() }, this.#table);
    fill(this, this.#scroll);
    new ResizeObserver(() => this.#draw()).observe(this.#scroll);
    this.addEventListener("keydown", (event) => this.#move(event));
  }

  set rows(rows) {
    this.#rows = rows;
    const known = new Set(rows.map((each) => each.key));
    for (const key of this.#drawn.keys()) if (!known.has(key)) this.#drawn.delete(key);
    this.#table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#draw();
  }

  #draw() {
    const height = this.#scroll.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.#scroll.scrollTop / ROW_HEIGHT) - BEYOND);
    const last = Math.min(this.#rows.length, first + Math.ceil(height / ROW_HEIGHT) + 2 * BEYOND);
    sized(this.#above, "height", `${first * ROW_HEIGHT}px`);
    sized(this.#below, "height", `${(this.#rows.length - last) * ROW_HEIGHT}px`);
    const wanted = [];
    const next = new Map();
    for (let at = first; at < last; at += 1) {
      const row = this.#rows[at];
      let drawn = this.#drawn.get(row.key);
      if (!drawn || drawn.mark !== row.mark) {
        const node = row.draw();
        if (drawn) keepFocus(drawn.node, node);
        drawn = { mark: row.mark, node };
      }
      drawn.node.setAttribute("aria-rowindex", String(at + 2));
      next.set(row.key, drawn);
      wanted.push(drawn.node);
    }
    this.#drawn = next;
    const now = [...this.#body.children];
    const all = [this.#above, ...wanted, this.#below];
    if (now.length !== all.length || now.some((each, at) => each !== all[at])) this.#place(all);
  }

  /** Put rows where they belong without taking out those that stay: a node that is moved loses focus. */
  #place(all) {
    const wanted = new Set(all);
    for (const each of [...this.#body.children]) {
      if (wanted.has(each)) continue;
      // Who scrolls away from the row they are at goes on from what they see.
      if (each.contains(document.activeElement)) this.#scroll.focus({ preventScroll: true });
      each.remove();
    }
    let at = this.#body.firstElementChild;
    for (const each of all) {
      if (each === at) at = at.nextElementSibling;
      else this.#body.insertBefore(each, at);
    }
  }

  #move(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const row = document.activeElement?.closest("tr");
    const links = [...this.#body.querySelectorAll("tr:not(.space) a")];
    if (!links.length) return;
    const mine = row ? links.findIndex((each) => each.closest("tr") === row) : -1;
    const top = this.#scroll.getBoundingClientRect().top;
    const seen = links.find((each) => each.getBoundingClientRect().top >= top);
    const next = mine >= 0 ? links[mine + (event.key === "ArrowDown" ? 1 : -1)] : seen;
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}
customElements.define("virtual-table", VirtualTable);

function keepFocus(old, node) {
  const links = [...old.querySelectorAll("a, button")];
  const at = links.indexOf(document.activeElement);
  if (at >= 0) requestAnimationFrame(() => node.querySelectorAll("a, button")[at]?.focus());
}
