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
