// Several GETs on one connection: browsers have six for one server, and screens need most of them.

import { ask, linesOf } from "./api.js";
import { S } from "./strings.js";

/** How many paths the server takes at once. */
export const MOST_AT_ONCE = 64;

/** How long one of many may take for an object: people wait for the others. */
const LATE_SECONDS = 10;

/**
 * Ask for paths and tell of each as it comes: told(at, {status} | {text} | {end: true}).
 * Returns when all have ended.
 */
export async function askSeveral(paths, told, signal) {
  const response = await ask("/ui/several", { method: "POST", body: { paths }, signal, headers: { Accept: "*/*" } });
  for await (const line of linesOf(response)) {
    if (!line) continue;
    const { at, ...what } = JSON.parse(line);
    told(at, what);
  }
}

/**
 * Ask for any number of objects: for each path {value}, {missing: true} or {why}. Who has not come to
 * the end of an answer in time is said to be late; nobody waits for them. `counted(done)` is told of each that has.
 *
 * @param {string[]} paths
 * @param {AbortSignal} signal
 * @param {(done: number) => void} counted
 */
export async function getSeveral(paths, signal, counted = () => {}) {
  const found = [];
  for (let from = 0; from < paths.length; from += MOST_AT_ONCE) {
    const parts = paths.slice(from, from + MOST_AT_ONCE).map(() => ({ status: 0, text: "", hasEnded: false }));
    const told = (at, { status, text, end }) => {
      if (status) parts[at].status = status;
      if (text) parts[at].text += text;
      if (end) {
        parts[at].hasEnded = true;
        counted(from + parts.filter((each) => each.hasEnded).length);
      }
    };
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), LATE_SECONDS * 1000);
    try {
      await askSeveral(paths.slice(from, from + MOST_AT_ONCE), told, AbortSignal.any([signal, late.signal]));
    } catch (error) {
      if (!late.signal.aborted || signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
    found.push(...parts.map((each) => (each.hasEnded ? answerOf(each) : { why: S.differ.late(LATE_SECONDS) })));
  }
  return found;
}

function answerOf({ status, text }) {
  try {
    const value = JSON.parse(text);
    if (status === 200 && value.metadata) return { value };
    // A cluster that says so is without the object; one that is not of the fleet has said nothing.
    if (status === 404 && value.details?.kind !== "clusters") return { missing: true };
    return { why: String(value.message || (status === 200 ? S.differ.unreadable : `HTTP ${status}`)) };
  } catch {
    return { why: status === 200 ? S.differ.unreadable : `HTTP ${status || "?"}` };
  }
}
