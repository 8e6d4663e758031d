// Several GETs on one connection: browsers have six for one server, and screens need most of them.

import { ask, linesOf } from "./api.js";

/** How many paths the server takes at once. */
export const MOST_AT_ONCE = 64;

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

/** Ask for any number of objects: for each path {value}, {missing: true} or {why}. */
export async function getSeveral(paths, signal) {
  const found = [];
  for (let from = 0; from < paths.length; from += MOST_AT_ONCE) {
    const parts = paths.slice(from, from + MOST_AT_ONCE).map(() => ({ status: 0, text: "" }));
    const told = (at, { status, text }) => {
      if (status) parts[at].status = status;
      if (text) parts[at].text += text;
    };
    await askSeveral(paths.slice(from, from + MOST_AT_ONCE), told, signal);
    found.push(...parts.map(answerOf));
  }
  return found;
}

function answerOf({ status, text }) {
  try {
    const value = JSON.parse(text);
    if (status === 200 && value.metadata) return { value };
    // A cluster that says so is without the object; one that is not of the fleet has said nothing.
    if (status === 404 && value.details?.kind !== "clusters") return { missing: true };
    return { why: String(value.message || `HTTP ${status}`) };
  } catch {
    return { why: `HTTP ${status || "?"}` };
  }
}
