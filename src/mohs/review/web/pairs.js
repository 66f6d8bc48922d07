/* Given against suggested labels: where a cell stands out, the guideline may be the problem, not the labels. */

import { get } from "./api.js";
import { fill, h, name, number } from "./dom.js";
import * as state from "./state.js";

const MOST = 24, LISTED = 40;

export function createPairs(box, { about }) {
  let round = 0;

  const open = (label, suggested) => state.set({ page: "grid", [`is.${about().roles.label}`]: label, [`is.${about().roles.suggested}`]: suggested });

  const refresh = async () => {
    const asked = ++round;
    const { pairs } = await get(`api/pairs?${state.query()}`);
    if (asked !== round) return;
    if (!pairs.length) { fill(box, h("div.nothing", {}, h("p", {}, "No example in this view has a suggestion that differs from its label."))); return; }
    const total = pairs.reduce((sum, one) => sum + one.count, 0);
    fill(box, h("div.sheet-text", {},
      h("h2", {}, "Which labels are confused"), h("p.soft", {}, `${number(total)} examples of this view, by given label (rows) and suggested label (columns). Many in one cell often point to an unclear labeling guideline: click the cell to see them.`),
      h("div.two", {}, matrix(pairs), list(pairs))));
  };

  const matrix = (pairs) => {
    const weight = new Map();
    for (const { label, suggested, count } of pairs) for (const one of [label, suggested]) weight.set(one, (weight.get(one) ?? 0) + count);
    const chosen = new Set([...weight].sort((a, b) => b[1] - a[1]).slice(0, MOST).map(([one]) => one));
    const classes = [...about().classes.filter((one) => chosen.has(one)), ...[...chosen].filter((one) => !about().classes.includes(one))];
    const cells = new Map(pairs.map((one) => [`${one.label}\u0000${one.suggested}`, one]));
    const most = Math.max(...pairs.map((one) => one.count));
    return h("div.matrix-box", {}, h("table.matrix", {}, h("caption.unseen", {}, "Number of examples by given and suggested label"),
      h("thead", {}, h("tr", {}, h("td", {}, "given ↓  suggested →"), classes.map((one) => h("th", { scope: "col", title: name(one) }, h("bdi", {}, name(one)))))),
      h("tbody", {}, classes.map((label) => h("tr", {}, h("th", { scope: "row", title: name(label) }, h("bdi", {}, name(label))), classes.map((suggested) => {
        const cell = cells.get(`${label}\u0000${suggested}`);
        if (!cell) return h("td", { class: label === suggested ? "same" : "" });
        return h("td", {}, h("button", { type: "button", style: { "--heat": Math.sqrt(cell.count / most).toFixed(3) }, title: `${name(label)} → ${name(suggested)}: ${number(cell.count)}, ${number(cell.decided)} decided`,
          "aria-label": `${name(label)}, suggested ${name(suggested)}: ${cell.count}`, onclick: () => open(label, suggested) }, number(cell.count)));
      }))))), weight.size > classes.length ? h("p.soft", {}, `The ${classes.length} of ${number(weight.size)} classes with the most pairs.`) : null);
  };

  const list = (pairs) => h("div.pair-list", {}, h("h3", {}, "Most frequent"), pairs.slice(0, LISTED).map((one) => h("button.pair", { type: "button", onclick: () => open(one.label, one.suggested) },
    h("span.labels", {}, h("bdi.old", {}, name(one.label)), " → ", h("bdi.new", {}, name(one.suggested))), h("span.soft", {}, one.decided ? `${number(one.decided)} of ${number(one.count)} decided` : number(one.count)))));

  return { refresh };
}
