// The API, as kubectl uses it: lists, watches that go on where they were, and streams of text.
//
// An answer that is not whole is never shown as if it were: a list says which clusters are missing
// in Warning headers, and a stream that breaks says since when nothing was heard.

import { S } from "./strings.js";

export const HUB = "/clusterspaces/hub";
const PAGE_SIZE = 500;
const LONGEST_WAIT = 30_000;
/** A hidden tab gives its streams back after this: browsers have six connections for one server. */
const HIDDEN_WAIT = 30_000;
const WATCH_SECONDS = 290;
/** Servers send a bookmark a minute. A watch that says nothing for longer may lead nowhere: it is opened anew. */
const SILENT_WAIT = 100_000;
/** A server that has not begun to answer after this is said to be gone, and waited for. */
const ANSWER_WAIT = 15_000;
const LISTS_WAIT = 5_000;
/** When clusters were missing from a list, it is made anew after this, to see whether they are back. */
const PARTIAL_SECONDS = 30;
/** Says that a person looks: they are shown the clusters that answer, where programs have to wait. */
const PERSON = { "Kubectl-Command": "clusterspace ui" };

export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Told once when a login has ended. */
let onExpired = () => {};
export function whenExpired(told) {
  onExpired = told;
}

/** Read the texts of Warning headers: `299 - "text", 299 - "text"`. */
export function warningsOf(header) {
  const found = [];
  for (const match of (header || "").matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)) {
    found.push(match[1].replace(/\\(.)/g, "$1"));
  }
  return found;
}

async function failureOf(response) {
  let message = `HTTP ${response.status}`;
  try {
    const body = await response.json();
    if (typeof body.message === "string" && body.message) message = body.message;
  } catch {
    // not a Status: the code is all there is to say
  }
  return new ApiError(response.status, message);
}

/**
 * Ask once, with `body` as JSON or `text` as it is; ApiError for every answer that is no success, and for none at all (status 0).
 *
 * @param {string} path
 * @param {{method?: string, body?: unknown, text?: string, headers?: Record<string, string>, signal?: AbortSignal}} options
 */
export async function ask(path, { method = "GET", body, text, headers = {}, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      body: body === undefined ? text : JSON.stringify(body),
      headers: { Accept: "application/json", ...PERSON, ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      credentials: "same-origin",
      redirect: "error",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, S.unreachable);
  }
  if (!response.ok) {
    const failure = await failureOf(response);
    if (path !== "/ui/session" && (await hasEnded(failure.status))) onExpired();
    throw failure;
  }
  return response;
}

/** Whether a refusal is because the login has ended: with its cookie gone too, one asks as nobody, and is forbidden. */
async function hasEnded(status) {
  if (status !== 403) return status === 401;
  try {
    const { status: now } = await fetch("/ui/session", { credentials: "same-origin", redirect: "error", cache: "no-store" });
    return now === 401 || now === 403;
  } catch {
    return false;
  }
}

export async function askJson(path, options) {
  const response = await ask(path, options);
  return { value: await response.json(), warnings: warningsOf(response.headers.get("Warning")) };
}

export function withQuery(path, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined)).toString();
  return text ? `${path}?${text}` : path;
}

/** @type {(ms: number, signal: AbortSignal) => Promise<void>} */
const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/** Yield the lines of a stream as they come. */
export async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  if (rest) yield rest;
}

/**
 * Keep a collection up to date until `signal` is aborted.
 *
 * told.list(items, warnings)   everything there is; what is not in it is gone
 * told.event(type, object)     one change
 * told.state(state)            {is: "loading" | "live" | "lost" | "refused", since, why}
 */
export async function follow(path, { query = {}, told, signal }) {
  let version = "";
  let wait = 1000;
  let heard = Date.now();
  let isPartial = false;
  told.state({ is: "loading", since: heard });
  while (!signal.aborted) {
    await shown(signal);
    if (signal.aborted) return;
    const attempt = new AbortController();
    const end = () => attempt.abort();
    signal.addEventListener("abort", end);
    const stopHiding = onHidden(end);
    window.addEventListener("offline", end);
    let silence = 0;
    const listen = () => (clearTimeout(silence), (silence = setTimeout(end, SILENT_WAIT)));
    const hear = () => {
      clearTimeout(late);
      heard = Date.now();
      wait = 1000;
      told.state({ is: "live", since: heard });
    };
    const late = setTimeout(() => version && told.state({ is: "lost", since: heard, why: S.unreachable }), ANSWER_WAIT);
    try {
      if (!version) {
        const { items, warnings, resourceVersion } = await listAll(path, query, attempt.signal);
        told.list(items, warnings);
        version = resourceVersion;
        isPartial = warnings.length > 0;
        hear();
      }
      const options = { ...query, watch: "1", allowWatchBookmarks: "true", resourceVersion: version, timeoutSeconds: isPartial ? PARTIAL_SECONDS : WATCH_SECONDS };
      await listed(attempt.signal);
      const begun = Date.now();
      const response = await ask(withQuery(path, options), { signal: attempt.signal });
      hear();
      listen();
      for await (const line of linesOf(response)) {
        if (!line) continue;
        heard = Date.now();
        listen();
        const event = JSON.parse(line);
        if (event.type === "ERROR") throw new ApiError(event.object.code || 500, event.object.message || "");
        version = event.object.metadata.resourceVersion || version;
        if (event.type !== "BOOKMARK") told.event(event.type, event.object);
      }
      // Watches end after a while, and go on at once. One that ends as soon as it begins must not
      // be asked for without pause.
      if (Date.now() - begun < 1000) await pause(1000, signal);
      if (isPartial) version = "";
    } catch (error) {
      if (signal.aborted) return;
      if (attempt.signal.aborted) continue; // the tab was hidden, or nothing was heard: go on from there
      if (error.status === 410) {
        version = ""; // what we knew is too old to go on from: ask for everything
        continue;
      }
      if (error.status === 401) {
        onExpired(); // said within a watch that was open, no request has failed
        return;
      }
      if (error.status === 403 || error.status === 404) {
        told.state({ is: "refused", since: Date.now(), why: error.message });
        return;
      }
      told.state({ is: "lost", since: heard, why: error.message || S.unreachable });
      await pause(wait * (0.5 + Math.random() / 2), signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    } finally {
      clearTimeout(late);
      clearTimeout(silence);
      signal.removeEventListener("abort", end);
      window.removeEventListener("offline", end);
      stopHiding();
    }
  }
}

// Watches wait for lists: browsers have six connections for one server, all windows together, and a list that is
// behind watches which never end would never be shown. Nothing is lost by it: a watch goes on from its list.
let listing = 0;
const waiting = [];

async function listAll(path, query, signal) {
  listing += 1;
  try {
    return await listPages(path, query, signal);
  } finally {
    listing -= 1;
    if (!listing) for (const each of waiting.splice(0)) each();
  }
}

/** @type {(signal: AbortSignal) => Promise<void>} */
const listed = (signal) => (listing ? Promise.race([new Promise((resolve) => waiting.push(resolve)), pause(LISTS_WAIT, signal)]) : Promise.resolve());

async function listPages(path, query, signal) {
  const items = [];
  const warnings = [];
  let token = "";
  for (;;) {
    const { value, warnings: said } = await askJson(withQuery(path, { ...query, limit: PAGE_SIZE, continue: token }), { signal });
    if (!Array.isArray(value.items)) throw new ApiError(500, "the answer is no list");
    items.push(...value.items);
    for (const each of said) if (!warnings.includes(each)) warnings.push(each);
    token = value.metadata?.continue || "";
    if (!token) return { items, warnings, resourceVersion: value.metadata?.resourceVersion || "" };
  }
}

function onHidden(act) {
  let timer = 0;
  const changed = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(act, HIDDEN_WAIT);
  };
  document.addEventListener("visibilitychange", changed);
  changed();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", changed);
  };
}

/** @param {AbortSignal} signal @returns {Promise<void>} */
function shown(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const changed = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", changed);
      resolve();
    };
    document.addEventListener("visibilitychange", changed);
    signal.addEventListener("abort", changed, { once: true });
    // A tab that was never looked at is loaded once, so that it is there when it is.
    setTimeout(() => (document.removeEventListener("visibilitychange", changed), resolve()), HIDDEN_WAIT);
  });
}

// -- kinds ------------------------------------------------------------------------------------------

const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/** @type {Promise<any[]> | null} */
let kinds = null;

/**
 * Every kind that a cluster serves:
 * {kind, resource, group, version, apiVersion, namespaced, names, verbs, subresources}.
 */
export function allKinds() {
  kinds ??= Promise.all(["/api", "/apis"].map(readKinds)).then(
    (found) => found.flat(),
    (error) => {
      kinds = null;
      throw error;
    },
  );
  return kinds;
}

/** What is served is so for who asks: somebody else asks again. */
export function forgetKinds() {
  kinds = null;
}

async function readKinds(path) {
  const { value } = await askJson(path, { headers: { Accept: DISCOVERY } });
  const found = [];
  for (const group of value.items || []) {
    const name = group.metadata?.name || "";
    for (const version of (group.versions || []).slice(0, 1)) {
      for (const each of version.resources || []) {
        const kind = each.responseKind?.kind || each.resource;
        found.push({
          kind,
          resource: each.resource,
          group: name,
          version: version.version,
          apiVersion: name ? `${name}/${version.version}` : version.version,
          namespaced: each.scope === "Namespaced",
          names: [each.resource, each.singularResource, kind.toLowerCase(), ...(each.shortNames || [])].filter(Boolean),
          verbs: each.verbs || [],
          subresources: (each.subresources || []).map((inner) => inner.subresource),
        });
      }
    }
  }
  return found;
}

/** Find a kind by any of its names; `deployments.apps` says the group, too. */
export async function findKind(text, apiVersion = "") {
  const [name, ...rest] = text.toLowerCase().split(".");
  const group = apiVersion.includes("/") ? apiVersion.split("/")[0] : rest.join(".");
  const isCore = apiVersion && !apiVersion.includes("/");
  return (await allKinds()).find(
    (each) => each.names.includes(name) && (isCore ? each.group === "" : !group || each.group === group),
  );
}

/** The path of a kind's collection, or of one object of it. */
export function pathOf(kind, namespace = "", name = "") {
  const root = kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`;
  const within = kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${within}/${kind.resource}${name ? `/${encodeURIComponent(name)}` : ""}`;
}
