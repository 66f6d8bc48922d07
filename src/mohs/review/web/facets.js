/* The filters on the left: values with counts, decided or not, and a range of a score with its histogram. */

import { get } from "./api.js";
import { fill, h, later, name, number, short, words } from "./dom.js";
import * as state from "./state.js";

const SHOWN = 8;
const DECIDED = { no: "open", yes: "decided", accept: "accepted", keep: "kept", change: "changed", exclude: "excluded", skip: "skipped", disputed: "disputed" };

export function createFacets(box, { about }) {
  let round = 0, found = null;
  const open = new Set();

  const refresh = async () => {
    const asked = ++round;
    const more = state.value("range") ? { range: state.value("range") } : {};
    const answer = await get(`api/facets?${state.query(more)}`);
    if (asked !== round) return;
    found = answer;
    draw();
  };

  const draw = () => {
    if (!found) return;
    const held = document.activeElement?.id;
    fill(box, decided(), ...found.facets.map(facet), range());
    if (held) document.getElementById(held)?.focus();
  };

  const decided = () => {
    const now = state.value("decided");
    const entries = Object.entries(DECIDED).filter(([key]) => found.decided[key] || key === "no" || key === "yes" || key === now);
    return section("Decisions", entries.map(([key, told]) =>
      line({ id: `f-decided-${key}`, told, count: found.decided[key], on: now === key, inner: !["no", "yes", "disputed"].includes(key), onclick: () => state.set({ decided: now === key ? "" : key }) })));
  };

  const facet = ({ column, title, values, more }, place) => {
    const chosen = state.values(`is.${column}`);
    const listed = [...values];
    for (const one of chosen) if (!listed.some(([value]) => value === one)) listed.push([one, 0]);
    listed.sort((a, b) => chosen.includes(b[0]) - chosen.includes(a[0]));
    const most = Math.max(1, ...listed.map(([, count]) => count));
    const part = open.has(column) ? listed : listed.slice(0, Math.max(SHOWN, chosen.length));
    return section(title, [
      ...part.map(([value, count], i) => line({
        id: `f-${place}-${i}`, told: name(value), count, share: count / most, on: chosen.includes(value),
        color: column === about().roles.verdict ? about().verdicts[value]?.color : null, onclick: () => state.toggle(`is.${column}`, value),
      })),
      listed.length > part.length || open.has(column)
        ? h("button.link", { type: "button", onclick: () => { open[open.has(column) ? "delete" : "add"](column); draw(); } },
          open.has(column) ? "Show fewer" : `Show ${number(listed.length - part.length)}${more ? "+" : ""} more`)
        : null,
    ]);
  };

  const range = () => {
    if (!found.range) return null;
    const { column, low, high, bins } = found.range;
    const [from, to] = (state.value(`in.${column}`) || "..").split("..");
    const apply = later((ends) => state.set({ [`in.${column}`]: ends[0] || ends[1] ? ends.join("..") : "" }), 350);
    const ends = [from, to];
    const input = (end, told) => h("input", {
      id: `range-${end}`, type: "number", step: "any", value: ends[end], "aria-label": told, placeholder: short([low, high][end]),
      oninput: (event) => { ends[end] = event.target.value; apply(ends); },
    });
    const most = Math.max(1, ...bins), step = (high - low) / bins.length;
    const numbers = about().columns.filter((one) => one.kind === "number");
    return section("Score", [
      h("select", { id: "range-column", "aria-label": "Score", onchange: (event) => { state.set({ range: event.target.value }); refresh(); } },
        numbers.map((one) => h("option", { value: one.name, selected: one.name === column, title: one.meaning }, words(one.name)))),
      h("div.histogram", { role: "img", "aria-label": `Distribution of ${words(column)}` }, bins.map((count, i) => h("i", {
        title: `${short(low + i * step)} to ${short(low + (i + 1) * step)}: ${number(count)}`,
        class: (from === "" || low + (i + 1) * step > +from) && (to === "" || low + i * step < +to) ? "on" : "off",
        style: { height: `${count ? 4 + 44 * Math.sqrt(count / most) : 0}px` },
        onclick: () => state.set({ [`in.${column}`]: `${+(low + i * step).toPrecision(4)}..` }),
      }))),
      h("div.ends", {}, input(0, `Least ${words(column)}`), h("span", {}, "to"), input(1, `Greatest ${words(column)}`)),
    ]);
  };

  return { refresh, draw };
}

const section = (title, children) => h("section", {}, h("h2", {}, title), ...children);

const line = ({ id, told, count, share, on, color, inner, onclick }) => h(`button.value${inner ? ".inner" : ""}`, { id, type: "button", "aria-pressed": String(!!on), title: told, onclick },
  share !== undefined ? h("i.share", { style: { width: `${Math.round(100 * share)}%` } }) : null,
  color ? h("i.dot", { style: { background: color } }) : null, h("bdi", {}, told), h("span", {}, number(count ?? 0)));
