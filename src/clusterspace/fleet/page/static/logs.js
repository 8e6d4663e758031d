// Logs of pods as they are written: of one, or of many with their clusters in colours.

import { pathOf, withQuery } from "./api.js";
import { fill, focusKeeper, h } from "./dom.js";
import { quoted } from "./model.js";
import { command } from "./parts.js";
import { askSeveral } from "./several.js";
import { S } from "./strings.js";

const MOST_LINES = 5000;
export const MOST_LOGS = 32;
const COLOURS = 8;
const TAIL = { one: 500, many: 100 };

/** A place for logs below an object's pods; `selector` finds the same pods in a terminal. */
export function logPanel(namespace, selector, signal) {
  const place = h("div");
  let running = new AbortController();
  let giveBack = () => {};
  signal.addEventListener("abort", () => running.abort(), { once: true });

  /** Show the log of one pod, or of several at once. */
  function show(pods, container = "") {
    if (!place.contains(document.activeElement)) giveBack = focusKeeper();
    running.abort();
    running = new AbortController();
    const mine = running;
    const shown = pods.slice(0, MOST_LOGS);
    const isOne = shown.length === 1;
    const chosen = container || (isOne ? shown[0].containers[0] : "");
    const label = isOne ? S.object.logOf(shown[0].own) : S.object.logsOf(shown.length);
    const title = h("h2", { id: "log", tabindex: "-1" }, isOne ? `${label} · ${shown[0].cluster}` : label);
    const notice = h("p", { class: "quiet body", role: "status" }, S.feed.loading(S.what.log));
    const text = h("pre", { class: "log", role: "group", tabindex: "0", "aria-label": label });
    const isFollowed = h("input", { type: "checkbox", checked: true });
    const choose = h("select", { "aria-label": S.object.container, onchange: () => show(pods, choose.value) }, shown[0].containers.map((each) => h("option", { value: each, selected: each === chosen }, each)));
    const tail = isOne ? TAIL.one : TAIL.many;
    const typed = isOne ? `${quoted(shown[0].name)} -c ${quoted(chosen)} -f --tail=${tail}` : `-l ${quoted(selector)} --prefix -f --tail=${tail} --max-log-requests=${shown.length}`;
    fill(
      place,
      h("section", { class: "panel", "aria-labelledby": "log" }, h("div", { class: "head" }, title, isOne && shown[0].containers.length > 1 ? choose : null, h("label", {}, isFollowed, " ", S.object.follow), h("button", { type: "button", class: "small", onclick: () => (mine.abort(), fill(place), giveBack()) }, S.close)), pods.length > shown.length ? h("p", { class: "notice warn" }, S.object.logsCut(shown.length, pods.length)) : null, notice, text),
      command(`kubectl logs -n ${quoted(namespace)} ${typed}`),
    );
    title.focus();
    read(shown, chosen, tail, mine.signal, { notice, text, isFollowed });
  }

  async function read(pods, container, tail, ended, { notice, text, isFollowed }) {
    const clusters = [...new Set(pods.map((each) => each.cluster))];
    const heads = pods.length === 1 ? null : pods.map((each) => [`log-${clusters.indexOf(each.cluster) % COLOURS}`, `${each.cluster} ${each.own} `]);
    const states = pods.map(() => ({ status: 0, rest: "", hasEnded: false }));
    const slow = setTimeout(() => fill(notice, S.feed.slow(S.what.log, 2)), 2000);
    let waiting = [];
    let isDue = false;

    const say = (words, isBad = false) => {
      notice.hidden = !words;
      notice.className = isBad ? "notice bad" : "quiet body";
      fill(notice, words);
    };
    function draw() {
      isDue = false;
      const lines = waiting.map(([at, line]) => (heads ? h("span", {}, h("span", { class: heads[at][0] }, heads[at][1]), `${line}\n`) : document.createTextNode(`${line}\n`)));
      waiting = [];
      text.append(...lines);
      if (text.childNodes.length > MOST_LINES) {
        while (text.childNodes.length > MOST_LINES / 2) text.firstChild.remove();
        say(S.object.logCut(MOST_LINES));
      }
      if (isFollowed.checked) text.scrollTop = text.scrollHeight;
    }
    function add(at, line) {
      waiting.push([at, line]);
      if (waiting.length > MOST_LINES) waiting = waiting.slice(-MOST_LINES);
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(draw);
    }
    function told(at, { status, text: more, end }) {
      clearTimeout(slow);
      const state = states[at];
      if (status) {
        state.status = status;
        if (!text.childNodes.length) say(S.object.logEmpty);
      }
      if (more && state.status === 200) {
        const lines = (state.rest + more).split("\n");
        state.rest = lines.pop();
        if (lines.length) say("");
        for (const line of lines) add(at, line);
      } else if (more) state.rest += more;
      if (!end) return;
      state.hasEnded = true;
      if (state.status !== 200) add(at, S.failed(messageOf(state.rest)));
      else if (state.rest) add(at, state.rest);
      if (states.every((each) => each.hasEnded)) say(S.object.logEnded);
    }

    const pathTo = (pod) => pathOf({ group: "", version: "v1", resource: "pods", namespaced: true }, namespace, pod.name);
    const paths = pods.map((pod) => withQuery(`${pathTo(pod)}/log`, { container: container || pod.containers[0], follow: "true", tailLines: String(tail) }));
    try {
      await askSeveral(paths, told, ended);
      if (!states.every((each) => each.hasEnded)) say(S.failed(S.unreachable), true);
    } catch (error) {
      if (!ended.aborted) say(S.failed(error.message || S.unreachable), true);
    } finally {
      clearTimeout(slow);
    }
  }

  return { node: place, show };
}

function messageOf(text) {
  try {
    return String(JSON.parse(text).message || text);
  } catch {
    return text;
  }
}
