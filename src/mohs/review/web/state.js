/* What the page shows, held in its address: the page, the filters, the order and the open example. A link to it can be shared.
 * The filters have the server's own spelling: see mohs/review/query.py. */

const FILTER = /^(is|in)\.|^(find|decided|set|sample|has|sort)$/;
const listeners = [];
let now = new URLSearchParams(location.search);
now.delete("token");

export const value = (name) => now.get(name) ?? "";
export const values = (name) => now.getAll(name);
export const empty = () => [...now.keys()].length === 0;
export const onChange = (call) => listeners.push(call);

/** The filters and the order, as parameters of a request; more: further ones, which replace those of the same name. */
export function query(more = {}) {
  const made = new URLSearchParams([...now].filter(([name]) => FILTER.test(name)));
  for (const [name, one] of Object.entries(more)) {
    made.delete(name);
    if (one !== "" && one !== null) made.append(name, one);
  }
  return made.toString();
}

/** The active filters: [name, value] pairs. */
export const filters = () => [...now].filter(([name]) => FILTER.test(name) && name !== "sort");

/** Change some parameters ("" or null removes one, a list sets several values); replace: without a step in the history. */
export function set(changes, { replace = false } = {}) {
  const before = now.toString(), asked = query();
  for (const [name, one] of Object.entries(changes)) {
    now.delete(name);
    for (const each of Array.isArray(one) ? one : [one]) if (each !== "" && each !== null && each !== undefined) now.append(name, each);
  }
  if (now.toString() === before && !replace) return;
  const address = now.toString() ? `?${now}` : location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  for (const call of listeners) call(query() !== asked);
}

/** Add or remove one value of a filter. */
export function toggle(name, one) {
  const held = values(name);
  set({ [name]: held.includes(one) ? held.filter((each) => each !== one) : [...held, one] });
}

export function clearFilters() {
  set(Object.fromEntries(filters().map(([name]) => [name, null])));
}

addEventListener("popstate", () => {
  const asked = query();
  now = new URLSearchParams(location.search);
  for (const call of listeners) call(query() !== asked);
});
