// Who is logged in, and whether this session may change things now.

import { askJson, forgetKinds } from "./api.js";
import { createStore } from "./store.js";

/** What `/ui/session` says; null while nobody is logged in. */
export const session = createStore(/** @type {any} */ (null));

let timer = 0;

/** Take what the server says of the session. When its leave to change things ends, ask again. */
export function setSession(value) {
  clearTimeout(timer);
  if (value?.user !== session.get()?.user) forgetKinds();
  session.set(value);
  if (value?.writeSecondsLeft) timer = setTimeout(refreshSession, (value.writeSecondsLeft + 1) * 1000);
}

export async function refreshSession() {
  try {
    setSession((await askJson("/ui/session")).value);
  } catch {
    // A login that has ended is told with the next request for anything else.
  }
}

export async function allowChanges(isAllowed) {
  setSession((await askJson("/ui/session", { method: "PUT", body: { readOnly: !isAllowed } })).value);
}
