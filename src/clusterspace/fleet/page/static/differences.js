// Which lines of two texts differ; decided from the texts alone.

/** Above this many pairs of lines to compare, the middle is told as taken out and put in. */
const MOST_PAIRS = 4_000_000;
const AROUND = 3;

/** Compare two texts line by line: [{sign: " " | "-" | "+", text}]. */
export function diffLines(before, after) {
  const one = before.split("\n");
  const other = after.split("\n");
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const same = (lines) => lines.map((text) => ({ sign: " ", text }));
  return [...same(one.slice(0, start)), ...middle(one.slice(start, one.length - end), other.slice(start, other.length - end)), ...same(one.slice(one.length - end))];
}

/** The fewest lines taken out and put in, by the longest common subsequence. */
function middle(one, other) {
  const whole = [...one.map((text) => ({ sign: "-", text })), ...other.map((text) => ({ sign: "+", text }))];
  if (!one.length || !other.length || one.length * other.length > MOST_PAIRS) return whole;
  const width = other.length + 1;
  const lengths = new Uint32Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = one[i] === other[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      found.push({ sign: " ", text: one[i] });
      i += 1;
      j += 1;
    } else if (j >= other.length || (i < one.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      found.push({ sign: "-", text: one[i] });
      i += 1;
    } else {
      found.push({ sign: "+", text: other[j] });
      j += 1;
    }
  }
  return found;
}

/** The parts with differences, each with a few lines around it. */
export function hunks(lines) {
  const isNear = new Uint8Array(lines.length);
  lines.forEach(({ sign }, at) => {
    if (sign !== " ") isNear.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
  });
  const found = [];
  lines.forEach((line, at) => {
    if (!isNear[at]) return;
    if (!at || !isNear[at - 1]) found.push([]);
    found.at(-1).push(line);
  });
  return found;
}

// -- one object in many clusters ---------------------------------------------------------------------

const VERSION = "app.kubernetes.io/version";
const OURS = /(^|\.)(karmada\.io|clusterspace\.io|kubernetes-fleet\.io)\//;
const TAG = /^[^@]*?:([^:/@]+)(?:@.*)?$/s;
const POD_SPECS = [(each) => each.spec?.template?.spec, (each) => each.spec, (each) => each.spec?.jobTemplate?.spec?.template?.spec];

/** Which version an object is of, by the rules of `clusterspace diff --by version`; "" if it has none. */
export function versionOf(object) {
  for (const labelled of [object.spec?.template, object]) {
    const said = labelled?.metadata?.labels?.[VERSION];
    if (said) return said;
  }
  const images = POD_SPECS.flatMap((find) => find(object)?.containers || []).map((each) => each?.image).filter(Boolean);
  return [...new Set(images.map((each) => TAG.exec(each)?.[1] || each))].join(", ");
}

/** Names that have the same value together, the most first: [{value, places}]. */
export function grouped(values) {
  const found = new Map();
  for (const [place, value] of values) found.set(value, [...(found.get(value) || []), place]);
  const order = (one, other) => other.places.length - one.places.length || (one.value < other.value ? -1 : 1);
  return [...found].map(([value, places]) => ({ value, places: places.sort() })).sort(order);
}

/** What somebody wrote of an object, field by field: a map from its path to its value as text. */
export function fieldsOf(object) {
  const { apiVersion, kind, status, metadata = {}, ...rest } = object;
  const found = new Map();
  const own = (all = {}) => Object.fromEntries(Object.entries(all).filter(([key]) => !OURS.test(key)));
  walk({ metadata: { labels: own(metadata.labels), annotations: own(metadata.annotations) }, ...rest }, "", found);
  if (kind === "Secret") for (const [path, value] of found) if (/^\.(data|stringData)\b/.test(path)) found.set(path, { hidden: value });
  return found;
}

function walk(value, path, found) {
  if (Array.isArray(value)) {
    // Elements with names are found by them: one more in front does not make all others different.
    const names = value.map((each) => each?.name);
    const isNamed = names.every((each) => typeof each === "string") && new Set(names).size === names.length;
    value.forEach((each, at) => walk(each, `${path}[${isNamed ? names[at] : at}]`, found));
  } else if (value && typeof value === "object") {
    for (const [key, each] of Object.entries(value)) walk(each, /^[\w-]+$/.test(key) ? `${path}.${key}` : `${path}['${key}']`, found);
  } else if (value !== undefined) found.set(path, typeof value === "string" ? value : JSON.stringify(value));
}

/**
 * The fields that are not the same everywhere: [{path, groups: [{value, places}]}]. `objects` are
 * by place; `hub` is the one among them that the others are made from. What the hub leaves open and
 * all clusters have filled in alike is no difference.
 */
export function differingFields(objects, hub) {
  const fields = new Map([...objects].map(([place, object]) => [place, fieldsOf(object)]));
  const paths = new Set([...fields.values()].flatMap((each) => [...each.keys()]));
  const found = [];
  for (const path of [...paths].sort()) {
    const values = new Map([...fields].map(([place, each]) => [place, each.get(path)]));
    const others = [...values].filter(([place]) => place !== hub).map(([, value]) => textOf(value));
    const isFilledIn = values.get(hub) === undefined && others.every((each) => each === others[0]);
    if (isFilledIn || others.concat(values.has(hub) ? [textOf(values.get(hub))] : []).every((each, _, all) => each === all[0])) continue;
    const hidden = [...values.values()].some((each) => each?.hidden !== undefined);
    found.push({ path, hidden, groups: grouped([...values].map(([place, value]) => [place, textOf(value)])) });
  }
  return found;
}

const textOf = (value) => (value === undefined ? "" : value.hidden !== undefined ? value.hidden : value);

/** Who last changed what is wanted of an object: {manager, time}, or null when nobody says. */
export function lastChange(object) {
  const entries = (object?.metadata?.managedFields || []).filter((each) => each?.time && each.subresource !== "status");
  return entries.sort((one, other) => (one.time < other.time ? 1 : -1))[0] || null;
}
