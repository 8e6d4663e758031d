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

/** Replace what a node holds. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
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
