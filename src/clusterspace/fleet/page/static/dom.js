// Nodes, made of values. Text is text: nothing here, and nothing in this page, reads markup.

/**
 * Make an element: h("a", {href: "#/", class: "x", onclick: act}, "text", child).
 * Properties that begin with `on` are listeners; false, null and undefined are left out.
 */
export function h(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** Replace what a node holds. What had focus in it has it again, if there is such a thing afterwards. */
export function fill(node, ...children) {
  const had = document.activeElement;
  const giveBack = had && had !== node && node.contains(had) ? focusKeeper(node) : null;
  node.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  giveBack?.();
  return node;
}

/**
 * Remember what has focus, and return how to give it back: to the same node or, where that was drawn
 * anew, to the one within `place` that is called the same.
 */
export function focusKeeper(place = document) {
  const had = document.activeElement;
  const name = had && nameOf(had);
  const [left, top] = [had?.scrollLeft, had?.scrollTop];
  return () => {
    const found = had?.isConnected ? had : name && [...place.querySelectorAll(had.localName)].find((each) => nameOf(each) === name);
    if (!found) return;
    found.focus({ preventScroll: true });
    found.scrollTo(left, top);
  };
}

/** What tells a node from others of its tag; nothing for what cannot be told. */
function nameOf(node) {
  const said = node.id || node.getAttribute("aria-label") || node.getAttribute("href");
  return said || (node.localName === "button" ? node.textContent : "");
}

/** Whether nothing has focus: what had it is gone or cannot be used now. */
export function isFocusLost() {
  const now = document.activeElement;
  return !now || now === document.body || now.localName === "dialog";
}

/** Set a length of an element's style, which the page's policy allows to scripts alone. */
export function sized(node, name, value) {
  node.style.setProperty(name, value);
  return node;
}

/** An address that is only ever within this page. */
export function link(address, ...children) {
  return h("a", { href: `#${address}` }, ...children);
}
