// A small reactive store, no more than the screens need.
//
//   const clusters = createStore(new Map());
//   const stop = clusters.subscribe((map) => draw(map));   // once a frame, however much changes
//   clusters.update((map) => map.set(name, cluster));       // in place: the screens only read
//
// Subscribers are told in the next frame, once for all changes before it, so that a thousand events
// cost one drawing. Nothing is compared: who draws decides what has changed.

/**
 * @template T
 * @param {T} value
 * @returns {{get(): T, set(next: T): void, update(change: (value: T) => void): void, subscribe(told: (value: T) => void): () => void}}
 */
export function createStore(value) {
  /** @type {Set<(value: T) => void>} */
  const subscribers = new Set();
  let isDue = false;

  function changed() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      for (const each of [...subscribers]) each(value);
    });
  }

  return {
    get: () => value,
    set(next) {
      value = next;
      changed();
    },
    update(change) {
      change(value);
      changed();
    },
    subscribe(told) {
      subscribers.add(told);
      return () => subscribers.delete(told);
    },
  };
}
