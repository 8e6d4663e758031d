// A shell in a container: lines go there over a WebSocket, and what comes back is shown as text.
//
// This is no terminal: what would move a cursor or paint is left out. `kubectl exec -it` is one.

import { ask, pathOf } from "./api.js";
import { fill, focusKeeper, h } from "./dom.js";
import { quoted } from "./model.js";
import { command } from "./parts.js";
import { S } from "./strings.js";

const MOST_LINES = 5000;
const MOST_KEPT = 100;
const PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const [STDIN, STDOUT, STDERR, STATUS, RESIZE] = [0, 1, 2, 3, 4];
const SEQUENCE = /\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]/g;
const UNFINISHED = /\x1b(?:\[[0-9;:?<=> -/]*|\][^\x07\x1b]*|[PX^_][^\x1b]*)?$/;
const LONGEST_SEQUENCE = 4096;

/**
 * What a terminal without any abilities shows of what is written to it:
 * write(text) returns the lines that are whole now; `last` is the one that is not.
 */
export function plainLines() {
  let rest = "";
  let line = "";
  return {
    get last() {
      return line;
    },
    write(text) {
      const all = rest + text;
      const cut = UNFINISHED.exec(all)?.[0] ?? "";
      rest = cut.length < LONGEST_SEQUENCE ? cut : "";
      const lines = [];
      for (const each of all.slice(0, all.length - cut.length).replace(SEQUENCE, "").replaceAll("\r\n", "\n")) {
        if (each === "\n") {
          lines.push(line);
          line = "";
        } else if (each === "\r") line = "";
        else if (each === "\b") line = line.slice(0, -1);
        else if (each === "\t" || (each >= " " && each !== "\x7f")) line += each;
      }
      return lines;
    },
  };
}

/** A place for a shell below an object's pods. */
export function shellPanel(namespace, signal) {
  const place = h("div");
  /** @type {WebSocket | null} */
  let socket = null;
  let giveBack = () => {};
  const stop = () => {
    if (socket) socket.onclose = null;
    socket?.close();
    socket = null;
  };
  signal.addEventListener("abort", stop, { once: true });

  function show(pod, container = pod.containers[0]) {
    stop();
    if (!place.contains(document.activeElement)) giveBack = focusKeeper();
    const title = h("h2", { id: "shell" }, S.shell.in(pod.own), ` · ${pod.cluster}`);
    const notice = h("p", { class: "quiet body", role: "status" }, S.shell.opening);
    const text = h("pre", { class: "log", role: "log", tabindex: "0", "aria-label": S.shell.in(pod.own) });
    const field = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", autocapitalize: "off", spellcheck: "false", disabled: true });
    const choose = h("select", { "aria-label": S.object.container, onchange: () => show(pod, choose.value) }, pod.containers.map((each) => h("option", { value: each, selected: each === container }, each)));
    const close = h("button", { type: "button", class: "small", onclick: () => (stop(), fill(place), giveBack()) }, S.close);
    const form = h("form", { class: "tools", onsubmit: (event) => (event.preventDefault(), enter()) }, h("label", { for: "typed" }, S.shell.line), field, h("button", { type: "submit" }, S.shell.enter), h("button", { type: "button", onclick: () => send("\x03") }, S.shell.interrupt));
    fill(
      place,
      h("section", { class: "panel shell", "aria-labelledby": "shell" }, h("div", { class: "head" }, title, pod.containers.length > 1 ? choose : null, close), notice, text, form),
      command(`kubectl exec -it -n ${quoted(namespace)} ${quoted(pod.name)} -c ${quoted(container)} -- sh`),
    );

    const path = pathOf({ group: "", version: "v1", resource: "pods", namespaced: true }, namespace, pod.name);
    const address = `${path}/exec?${new URLSearchParams({ container, command: "sh", stdin: "true", stdout: "true", stderr: "true", tty: "true" })}`;
    const mine = new WebSocket(`wss://${location.host}${address}`, PROTOCOLS);
    socket = mine;
    mine.binaryType = "arraybuffer";
    const encoder = new TextEncoder();
    const decoders = new Map([STDOUT, STDERR].map((each) => [each, new TextDecoder()]));
    const screen = plainLines();
    const last = document.createTextNode("");
    const typed = [];
    let at = 0;
    let hasOpened = false;
    let ended = "";
    text.append(last);

    function send(words, channel = STDIN) {
      if (mine.readyState !== WebSocket.OPEN) return;
      const body = encoder.encode(words);
      const message = new Uint8Array(body.length + 1);
      message[0] = channel;
      message.set(body, 1);
      mine.send(message);
    }
    function enter() {
      if (field.value) typed.splice(MOST_KEPT - 1, Infinity), typed.unshift(field.value);
      at = 0;
      send(`${field.value}\n`);
      field.value = "";
    }
    field.addEventListener("keydown", (event) => {
      if (event.ctrlKey && event.key === "c" && field.selectionStart === field.selectionEnd) send("\x03");
      else if (event.ctrlKey && event.key === "d" && !field.value) send("\x04");
      else if (event.key === "ArrowUp" && at < typed.length) field.value = typed[at++];
      else if (event.key === "ArrowDown" && at > 0) field.value = typed[--at - 1] ?? "";
      else return;
      event.preventDefault();
    });
    const say = (words, isBad = false) => {
      notice.hidden = !words;
      notice.className = isBad ? "notice bad" : "quiet body";
      fill(notice, words);
    };
    const slow = setTimeout(() => hasOpened || say(S.feed.slow(S.shell.what, 2)), 2000);

    mine.onopen = () => {
      hasOpened = true;
      say(S.shell.opened);
      send(JSON.stringify({ Width: 160, Height: 40 }), RESIZE);
      field.disabled = false;
      field.focus();
    };
    mine.onmessage = ({ data }) => {
      if (!(data instanceof ArrayBuffer) || !data.byteLength) return;
      const [channel] = new Uint8Array(data, 0, 1);
      const body = new Uint8Array(data, 1);
      if (channel === STATUS) ended = endOf(new TextDecoder().decode(body));
      const decoder = decoders.get(channel);
      if (!decoder) return;
      for (const line of screen.write(decoder.decode(body, { stream: true }))) last.before(`${line}\n`);
      last.data = screen.last;
      while (text.childNodes.length > MOST_LINES) text.firstChild.remove();
      text.scrollTop = text.scrollHeight;
    };
    mine.onclose = async () => {
      clearTimeout(slow);
      if (document.activeElement === field) close.focus();
      field.disabled = true;
      if (hasOpened) say(ended || S.shell.ended);
      else say(await whyNot(address, signal), true);
    };
  }

  return { node: place, show };
}

/** What the cluster says of the end of a program. */
function endOf(text) {
  try {
    const { status, message } = JSON.parse(text);
    return status === "Success" ? "" : S.shell.endedWith(String(message || ""));
  } catch {
    return "";
  }
}

/** Why there is no shell. Browsers do not say what a server answered to a WebSocket: it is asked again, without one. */
async function whyNot(address, signal) {
  try {
    await ask(address, { signal });
  } catch (error) {
    if (error.status && error.status !== 400) return S.failed(error.message);
    if (!error.status) return S.failed(S.unreachable);
  }
  return S.shell.none;
}
