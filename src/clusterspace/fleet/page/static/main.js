// The frame around the screens: who is logged in, which screen it is, and keys.

import { ask, askJson, whenExpired } from "./api.js";
import { fill, h } from "./dom.js";
import { fleetScreen } from "./fleet.js";
import { loginScreen } from "./login.js";
import { allowChanges, session, setSession } from "./session.js";
import { S } from "./strings.js";

const page = document.getElementById("page");
let screen = new AbortController();

// -- colours ----------------------------------------------------------------------------------------

const THEME = "theme";
function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
applyTheme(localStorage.getItem(THEME));

function themeSwitch() {
  const chosen = localStorage.getItem(THEME) || "auto";
  const select = h(
    "select",
    { "aria-label": S.theme.label, onchange: () => (localStorage.setItem(THEME, select.value), applyTheme(select.value)) },
    ["auto", "light", "dark"].map((each) => h("option", { value: each, selected: each === chosen }, S.theme[each])),
  );
  select.value = chosen;
  return select;
}

// -- screens ----------------------------------------------------------------------------------------

const SCREENS = {
  "": async (signal) => fleetScreen(signal),
  fleet: async (signal) => fleetScreen(signal),
  object: async (signal, parts) => (await import("./object.js")).objectScreen(signal, parts),
  moves: async (signal) => (await import("./moves.js")).movesScreen(signal),
  whatif: async (signal, parts, query) => (await import("./whatif.js")).whatIfScreen(signal, query),
  search: async (signal, parts, query) => (await import("./search.js")).searchScreen(signal, query),
};
const TITLES = { fleet: S.fleet, search: S.search, moves: S.moves.title, whatif: S.whatIf.title };
const KEYS = { f: "fleet", s: "search", m: "moves", w: "whatif" };

/** Show the screen of the address. Who came here from another one goes on in what it is about. */
async function show(isArrival = true) {
  screen.abort();
  screen = new AbortController();
  const { signal } = screen;
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [, name = "", ...parts] = path.split("/");
  const draw = Object.hasOwn(SCREENS, name) ? SCREENS[name] : null;
  const main = h("main", { id: "main", tabindex: "-1" });
  const field = document.activeElement?.closest("main") ? document.activeElement.id : "";
  fill(page, frame(name || "fleet"), main);
  document.title = `${name === "object" ? decodeURIComponent(parts.at(-1) || "") : TITLES[name || "fleet"] || S.product} · ${S.product}`;
  if (!draw) {
    fill(main, h("h1", {}, S.product), h("p", { class: "empty" }, S.notFound));
    if (isArrival) arrive(main, "");
    return;
  }
  try {
    const drawn = await draw(signal, parts.map(decodeURIComponent), new URLSearchParams(query));
    if (signal.aborted) return;
    fill(main, drawn);
    if (isArrival) arrive(main, field);
  } catch (error) {
    if (!signal.aborted) fill(main, h("p", { class: "notice bad", role: "alert" }, S.failed(error.message)));
  }
}

/** Focus goes with the screen: to the field somebody was in, if it is there too, or else to the heading. */
function arrive(main, field) {
  const title = main.querySelector("h1");
  title?.setAttribute("tabindex", "-1");
  const same = field ? main.querySelector(`#${CSS.escape(field)}`) : null;
  (same ?? title)?.focus();
}

function frame(current) {
  const item = (name, text) => h("a", { href: `#/${name}`, "aria-current": current === name ? "page" : null }, text);
  return [
    h("a", { class: "skip", href: "#main", onclick: (event) => (event.preventDefault(), document.getElementById("main")?.focus()) }, S.skip),
    h(
      "header",
      { class: "top" },
      h("span", { class: "product" }, h("img", { src: "icon.svg", alt: "", width: "18", height: "18" }), S.product),
      h("nav", { "aria-label": S.product }, item("fleet", S.fleet), item("search", S.search), item("moves", S.moves.title), item("whatif", S.whatIf.title)),
      h(
        "div",
        { class: "who" },
        h("span", { class: "user", title: (session.get().groups || []).join(", ") }, session.get().user),
        mode,
        themeSwitch(),
        h("button", { type: "button", class: "small", title: S.help, onclick: showKeys }, "?"),
        session.get().secondsLeft === null ? null : h("button", { type: "button", class: "small", onclick: logOut }, S.logOut),
      ),
    ),
  ];
}

/** Whether the session changes things, and the way back when it does. */
const mode = h("span", { class: "mode", role: "status", tabindex: "-1" });
function drawMode(value) {
  if (!value || value.secondsLeft === null) fill(mode);
  else if (value.readOnly) fill(mode, h("span", { class: "badge plain", title: S.readOnlyWhy }, S.readOnly));
  else fill(mode, h("span", { class: "badge health" }, S.changes(Math.ceil(value.writeSecondsLeft / 60))), h("button", { type: "button", class: "small", onclick: () => readAgain() }, S.readOnlyAgain));
}
session.subscribe(drawMode);

async function readAgain() {
  try {
    await allowChanges(false);
    drawMode(session.get());
    mode.focus();
  } catch {
    // the button is there yet
  }
}

async function logOut() {
  try {
    await ask("/ui/session", { method: "DELETE" });
  } catch {
    // ended already: that is what was wanted
  }
  begin("");
}

// -- logins -----------------------------------------------------------------------------------------

function begin(why) {
  screen.abort();
  setSession(null);
  document.title = `${S.login.title} · ${S.product}`;
  fill(page, loginScreen(why, (opened) => (setSession(opened), show())));
}

/** The address somebody was at who went away to log in. */
function kept() {
  const address = sessionStorage.getItem("address") ?? "";
  sessionStorage.removeItem("address");
  return address.startsWith("#/") ? address : "#/fleet";
}

async function start() {
  const failed = /^#sign-on=(\w+)$/.exec(location.hash)?.[1];
  if (failed) {
    history.replaceState(null, "", kept());
    begin(S.login.signOnFailed[failed] ?? S.login.signOnFailed.failed);
    return;
  }
  const code = /^#code=([\w%-]+)$/.exec(location.hash)?.[1];
  if (code) {
    // Out of the address at once, so that nobody copies or bookmarks it.
    history.replaceState(null, "", kept());
    try {
      setSession((await askJson("/ui/session", { method: "POST", headers: { Authorization: `Clusterspace-Code ${decodeURIComponent(code)}` } })).value);
    } catch {
      begin(S.login.codeUsed);
      return;
    }
  } else {
    try {
      setSession((await askJson("/ui/session")).value);
    } catch (error) {
      begin(error.status === 401 || error.status === 403 ? "" : S.failed(error.message));
      return;
    }
  }
  show(false);
}

// -- keys -------------------------------------------------------------------------------------------

function showKeys() {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys", onclose: () => dialog.remove() },
    h("h2", { id: "keys" }, S.keys.title),
    h("dl", {}, S.keys.list.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("button", { type: "button", onclick: () => dialog.close() }, S.close),
  );
  document.body.append(dialog);
  dialog.showModal();
}

let wasG = false;
document.addEventListener("keydown", (event) => {
  if (!session.get() || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = /** @type {Element} */ (event.target);
  if (at.closest("input, textarea, select, dialog")) return;
  if (event.key === "?") showKeys();
  else if (event.key === "/") {
    const find = /** @type {HTMLElement | null} */ (document.querySelector("[data-find]"));
    if (find) {
      event.preventDefault();
      find.focus();
    } else location.hash = "#/search";
  } else if (wasG && Object.hasOwn(KEYS, event.key)) location.hash = `#/${KEYS[event.key]}`;
  wasG = event.key === "g";
});

window.addEventListener("hashchange", () => {
  if (/^#(code|sign-on)=/.test(location.hash)) start();
  else if (session.get()) show();
});
whenExpired(() => session.get() && begin(S.login.expired));
start();
