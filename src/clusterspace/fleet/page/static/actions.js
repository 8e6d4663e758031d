// What can be changed of one object: its scale, a restart, its YAML. Nothing is sent before the server
// has said, by a dry run, what would become of it.

import { ask, askJson, HUB, withQuery } from "./api.js";
import { diffLines, hunks } from "./differences.js";
import { fill, h, isFocusLost } from "./dom.js";
import { quoted, yaml } from "./model.js";
import { command } from "./parts.js";
import { allowChanges, refreshSession, session } from "./session.js";
import { S } from "./strings.js";

const RESTARTS = ["Deployment", "DaemonSet", "StatefulSet"];
const MANAGED = "karmada.io/managed";
const MOST_TRIES = 5;
const VERSION = /^( {2}resourceVersion: ).*$/m;

/** Ask whether its user may do something with an object; who cannot be asked says no. */
export async function isAllowed(target, verb, subresource, signal) {
  const { kind, cluster, namespace, own } = target;
  const root = cluster ? `/clusterspaces/${encodeURIComponent(cluster)}` : HUB;
  const resourceAttributes = { verb, group: kind.group, version: kind.version, resource: kind.resource, subresource, namespace, name: own };
  try {
    const { value } = await askJson(`${root}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`, {
      method: "POST",
      signal,
      body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } },
    });
    return value.status?.allowed === true;
  } catch {
    return false;
  }
}

/**
 * The buttons of one object: only those that its user may press, and none before they have asked to
 * change things. `target` is {kind, cluster, namespace, own, name, path}.
 */
export function actionBar(target, current, signal) {
  const bar = h("div", { class: "actions", role: "group", "aria-label": S.actions.title, hidden: true });
  let allowed = [];
  const elsewhere = new Set();
  let away = null;
  let drawn = "";

  function draw() {
    const object = current();
    const isReadOnly = session.get()?.readOnly !== false;
    const shown = object ? allowed : [];
    const verbs = [...shown.map((each) => S.actions[each].verb), ...(object ? elsewhere : [])];
    const mark = JSON.stringify([isReadOnly, shown, verbs]);
    if (mark === drawn) return; // what has focus keeps it
    drawn = mark;
    bar.hidden = !(isReadOnly ? verbs : shown).length;
    if (bar.hidden) fill(bar);
    else if (isReadOnly) {
      const ask = h("button", { type: "button", onclick: () => allow(ask) }, S.actions.allow);
      fill(bar, ask, h("span", { class: "quiet" }, S.actions.youMay(verbs)));
    } else {
      fill(bar, shown.map((each) => h("button", { type: "button", onclick: () => open(each) }, S.actions[each].button)));
    }
  }

  async function allow(button) {
    button.disabled = true;
    try {
      await allowChanges(true);
      draw();
      (bar.querySelector("button") ?? away)?.focus();
    } catch (error) {
      fill(bar, h("p", { class: "notice bad", role: "alert" }, S.failed(error.message)));
    }
  }

  async function open(name) {
    try {
      const { value } = await askJson(name === "scale" ? `${target.path}/scale` : target.path, { signal });
      showAction(ACTIONS[name](target, value), value, signal);
    } catch (error) {
      if (!signal.aborted) showAction({ title: S.actions[name].title(target.own), failed: error }, null, signal);
    }
  }

  const questions = [
    ["scale", "patch", "scale", target.kind.subresources.includes("scale")],
    ["restart", "patch", "", RESTARTS.includes(target.kind.kind) && target.kind.group === "apps"],
    ["edit", "update", "", target.kind.verbs.includes("update")],
  ];
  Promise.all(questions.map(([, verb, subresource, isThere]) => isThere && isAllowed(target, verb, subresource, signal))).then((answers) => {
    allowed = questions.filter((_, at) => answers[at]).map(([name]) => name);
    draw();
  });
  const stop = session.subscribe(draw);
  signal.addEventListener("abort", stop, { once: true });
  /** Say what else its user may do here, with a button that is elsewhere: below a heading that takes focus. */
  const offer = (verb, heading) => (elsewhere.add(verb), (away = heading), draw());
  return { node: bar, draw, offer };
}

// -- the actions ------------------------------------------------------------------------------------
//
// Each is made for an object as it was read:
//   field             what its user fills in, if anything
//   request()         {method, path, type, body}: sent with dryRun first
//   rebase(latest)    go on from another state of the object, after a conflict
//   command()         what does the same in a terminal

const kubectl = ({ cluster, kind, namespace, name }, verb, ...rest) =>
  [cluster ? "kubectl" : "kubectl --context hub", verb, `${kind.group ? `${kind.resource}.${kind.group}` : kind.resource}/${quoted(name)}`, ...(namespace ? ["-n", quoted(namespace)] : []), ...rest].join(" ");

const ACTIONS = {
  scale(target, scale) {
    let base = scale;
    const field = h("input", { type: "number", id: "replicas", min: "0", step: "1", required: true, value: String(scale.spec?.replicas ?? 0) });
    return {
      title: S.actions.scale.title(target.own),
      field: h("label", { for: "replicas" }, S.actions.scale.replicas, " ", field),
      input: field,
      request: () => ({
        method: "PATCH",
        path: `${target.path}/scale`,
        type: "application/merge-patch+json",
        body: JSON.stringify({ metadata: { resourceVersion: base.metadata.resourceVersion }, spec: { replicas: Number(field.value) } }),
      }),
      rebase: (latest) => (base = latest),
      readPath: `${target.path}/scale`,
      command: () => kubectl(target, "scale", `--current-replicas=${base.spec?.replicas ?? 0}`, `--replicas=${Number(field.value)}`),
    };
  },

  restart(target) {
    const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const template = { metadata: { annotations: { "kubectl.kubernetes.io/restartedAt": at } } };
    return {
      title: S.actions.restart.title(target.own),
      field: h("p", {}, S.actions.restart.lead),
      request: () => ({ method: "PATCH", path: target.path, type: "application/merge-patch+json", body: JSON.stringify({ spec: { template } }) }),
      rebase: () => {},
      readPath: target.path,
      command: () => kubectl(target, "rollout restart"),
    };
  },

  edit(target, object) {
    const field = h("textarea", { id: "edited", class: "mono", rows: "18", spellcheck: "false", autocomplete: "off", autocapitalize: "off", required: true, value: `${yaml(written(target, object))}\n` });
    const isPlaced = target.cluster && object.metadata?.labels?.[MANAGED] === "true";
    return {
      title: S.actions.edit.title(target.own),
      field: [isPlaced ? h("p", { class: "notice warn" }, S.actions.edit.placed) : null, h("label", { for: "edited" }, S.object.yaml), field],
      input: field,
      // Without a version the last who writes wins, and nobody is told.
      problem: () => (VERSION.test(field.value) ? "" : S.actions.edit.noVersion),
      request: () => ({ method: "PUT", path: target.path, type: "application/yaml", body: field.value }),
      rebase: (latest) => (field.value = field.value.replace(VERSION, (_, head) => `${head}${JSON.stringify(latest.metadata.resourceVersion)}`)),
      readPath: target.path,
      command: () => kubectl(target, "edit"),
    };
  },
};

/** An object as it is edited: all but the record of who has set which field. */
function written({ kind }, object) {
  const { managedFields, ...metadata } = object.metadata;
  return { apiVersion: kind.apiVersion, kind: kind.kind, ...object, metadata };
}

/** What counts when two states of an object are compared: not what changes by itself. */
export function compared(object) {
  const { status, ...rest } = object;
  const { managedFields, resourceVersion, generation, ...metadata } = object.metadata || {};
  return yaml(sorted({ ...rest, metadata }));
}

/** The same value with its keys in order: servers write them in whichever they like. */
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

// -- the dialog: fill in, see what would change, send ------------------------------------------------

function showAction(action, object, signal) {
  let base = object;
  const said = h("div", { role: "status" });
  const complain = (error) => fill(said, h("p", { class: "notice bad", role: "alert" }, S.failed(error.message)));
  const preview = h("button", { type: "submit", class: "main" }, S.actions.preview);
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), dryRun()), oninput: () => fill(said) }, action.field, h("div", { class: "row" }, action.failed ? null : preview, h("button", { type: "button", onclick: () => dialog.close() }, S.close)));
  const dialog = h("dialog", { class: "action", "aria-labelledby": "action", onclose: () => dialog.remove() }, h("h2", { id: "action" }, action.title), form, said);
  signal.addEventListener("abort", () => dialog.close(), { once: true });
  document.body.append(dialog);
  dialog.showModal();
  if (action.failed) complain(action.failed);

  /** Send what its user wants; of what only its own status has moved on, again. */
  async function send(query) {
    for (let tries = 1; ; tries += 1) {
      const { method, path, type, body } = action.request();
      try {
        return await (await ask(withQuery(path, { ...query, fieldManager: "clusterspace-ui", fieldValidation: "Strict" }), { method, signal, text: body, headers: { "Content-Type": type } })).json();
      } catch (error) {
        if (error.status !== 409 || tries > MOST_TRIES) throw error;
        const latest = (await askJson(action.readPath, { signal })).value;
        if (compared(latest) !== compared(base)) throw Object.assign(error, { latest });
        base = latest;
        action.rebase(latest);
      }
    }
  }

  async function attempt(act, waiting) {
    const problem = action.problem?.();
    if (problem) {
      complain(new Error(problem));
      return;
    }
    fill(said, h("p", { class: "quiet" }, waiting));
    try {
      await act();
    } catch (error) {
      if (signal.aborted) return;
      if (error.latest) showConflict(error.latest);
      else complain(error);
      if (isFocusLost()) preview.focus();
      if (error.status === 403) refreshSession();
    }
  }

  const dryRun = () =>
    attempt(async () => {
      const result = await send({ dryRun: "All" });
      const lines = diffLines(compared(base), compared(result));
      if (!lines.some((each) => each.sign !== " ")) {
        fill(said, h("p", { class: "empty" }, S.actions.nothing));
        return;
      }
      const go = h("button", { type: "button", class: "main", onclick: () => confirm() }, S.actions.send);
      fill(said, h("h3", {}, S.actions.wouldChange), diffView(lines, S.actions.wouldChange), command(action.command()), h("div", { class: "row" }, go));
      go.focus();
    }, S.actions.asking);

  const confirm = () =>
    attempt(async () => {
      await send({});
      form.hidden = true;
      const close = h("button", { type: "button", class: "main", onclick: () => dialog.close() }, S.close);
      fill(said, h("p", { class: "notice" }, S.actions.done), h("div", { class: "row" }, close));
      close.focus();
    }, S.actions.sending);

  function showConflict(latest) {
    const lines = diffLines(compared(base), compared(latest));
    const again = h("button", { type: "button", class: "main", onclick: () => ((base = latest), action.rebase(latest), dryRun()) }, S.actions.again);
    fill(said, h("p", { class: "notice bad", role: "alert" }, S.actions.conflict), h("h3", {}, S.actions.meanwhile), diffView(lines, S.actions.meanwhile), h("p", { class: "quiet" }, S.actions.againWhy), h("div", { class: "row" }, again));
    again.focus();
  }
}

/** Lines that differ, with a few around them. */
export function diffView(lines, label) {
  const shown = hunks(lines).map((hunk) => h("code", { class: "hunk" }, hunk.map(({ sign, text }) => h(sign === "+" ? "ins" : sign === "-" ? "del" : "span", {}, `${sign} ${text}\n`))));
  return h("pre", { class: "diff", role: "group", tabindex: "0", "aria-label": label }, shown);
}
