/* Dialogs: another label with type-ahead, deciding on many at once, the reviewer's name, the token, and the keys. */

import { get, post } from "./api.js";
import { $, fill, h, later, name, number } from "./dom.js";
import * as state from "./state.js";

const LISTED = 60;
const KEYS = [["a", "accept the suggestion"], ["k", "keep the label"], ["l", "choose another label"], ["x", "exclude the example"], ["s", "skip it"], ["u", "undo"], ["r", "redo"],
  ["← →", "previous, next"], ["Enter", "open the example"], ["Esc", "back"], ["Space", "select; with Shift: a range"], ["/", "search"], ["?", "these keys"]];

function show(...children) {
  const dialog = $("dialog");
  fill(dialog, ...children);
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}

const buttons = (...children) => h("div.buttons", {}, ...children);
const cancel = () => h("button", { type: "button", onclick: () => $("dialog").close() }, "Cancel");

/** The classes that fit what was typed: those that begin with it first. */
export function matching(classes, typed) {
  const wanted = typed.trim().toLowerCase();
  if (!wanted) return classes.slice(0, LISTED);
  const fits = classes.filter((one) => one.toLowerCase().includes(wanted));
  const rank = (one) => (one.toLowerCase() === wanted ? 0 : one.toLowerCase().startsWith(wanted) ? 1 : 2);
  return fits.sort((a, b) => rank(a) - rank(b)).slice(0, LISTED);
}

/** Ask for a label; undefined if the dialog was closed. */
export async function chooseLabel(classes, first = []) {
  let found = [], at = 0, chosen;
  const list = h("ul.choices", { role: "listbox", id: "choices" });
  const take = (one) => { chosen = one; $("dialog").close("ok"); };
  const draw = () => {
    fill(list, found.map((one, i) => h("li", { role: "option", id: `choice-${i}`, "aria-selected": String(i === at), onclick: () => take(one) }, h("bdi", {}, name(one)))));
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `choice-${at}`);
  };
  const input = h("input", {
    type: "text", id: "label-input", role: "combobox", "aria-controls": "choices", "aria-expanded": "true", autocomplete: "off", placeholder: "Type a label", "aria-label": "Label",
    oninput: () => { found = matching(ordered, input.value); at = 0; draw(); },
    onkeydown: (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))); draw(); event.preventDefault(); }
      if (event.key === "Enter") { event.preventDefault(); if (found[at] !== undefined) take(found[at]); }
    },
  });
  const ordered = [...first.filter((one) => classes.includes(one)), ...classes.filter((one) => !first.includes(one))];
  found = matching(ordered, "");
  setTimeout(() => { draw(); input.focus(); });
  await show(h("h2", {}, "Other label"), input, list);
  return chosen;
}

/** Decide on everything in the view, or on the likely ones: always with the count first. */
export async function chooseBulk(about, classes) {
  const likely = Boolean(about.roles.chance), suggests = Boolean(about.roles.suggested);
  let decision = suggests ? "accept" : "keep", label = "", view = null, round = 0;
  const count = h("p.count", { "aria-live": "polite" }), go = h("button.main", { type: "button", id: "bulk-go", onclick: () => $("dialog").close("ok") }, "…");
  const least = h("input", { type: "number", id: "bulk-least", min: 0, max: 1, step: 0.01, value: suggests && likely ? 0.98 : 0, oninput: later(() => ask(), 200) });
  const pick = h("select", { "aria-label": "New label", hidden: true, onchange: (event) => { label = event.target.value; ask(); } }, h("option", { value: "" }, "choose …"), classes.map((one) => h("option", { value: one }, name(one))));
  const told = { accept: "Accept suggestions", keep: "Keep labels", change: "Set the label to", exclude: "Exclude" };
  const kinds = h("select", { id: "bulk-kind", "aria-label": "Decision", onchange: (event) => { decision = event.target.value; pick.hidden = decision !== "change"; ask(); } },
    Object.entries(told).filter(([kind]) => kind !== "accept" || suggests).map(([kind, text]) => h("option", { value: kind }, text)));
  const ask = async () => {
    const asked = ++round;
    go.disabled = true;
    const more = { decided: "no", sort: "", ...(decision === "accept" ? { has: "suggestion" } : {}) };
    const held = likely ? state.value(`in.${about.roles.chance}`).split("..") : [];
    if (likely && +least.value > 0) more[`in.${about.roles.chance}`] = `${Math.max(+least.value, +(held[0] || 0))}..${held[1] ?? ""}`;
    try {
      const found = await get(`api/view?${state.query(more)}`);
      if (asked !== round) return;
      view = found.view;
      fill(count, h("b", {}, number(found.total)), ` open ${found.total === 1 ? "example" : "examples"} in this view${decision === "accept" ? " with a suggestion" : ""}${+least.value > 0 ? `, at least ${Math.round(100 * least.value)}% likely wrong` : ""}.`);
      fill(go, `${told[decision]}: ${number(found.total)}`);
      go.disabled = !found.total || (decision === "change" && !label);
    } catch (error) { fill(count, error.message); }
  };
  ask();
  const answer = await show(h("h2", {}, "Decide on many at once"), h("p.soft", {}, "Decided examples stay as they are. One undo reverts them all."),
    h("div.row", {}, kinds, pick), likely ? h("label.row", {}, "where the label is wrong with probability ≥ ", least) : null, count, buttons(cancel(), go));
  return answer === "ok" ? { view, decision, label } : undefined;
}

/** Ask for the reviewer's name. */
export async function chooseName(now) {
  const input = h("input", { type: "text", maxlength: 80, value: now, "aria-label": "Name", onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); $("dialog").close("ok"); } } });
  setTimeout(() => input.select());
  const answer = await show(h("h2", {}, "Your name in the log"), h("p.soft", {}, "Every decision is stored with the name of its reviewer."), input,
    buttons(cancel(), h("button.main", { type: "button", onclick: () => $("dialog").close("ok") }, "Use this name")));
  return answer === "ok" && input.value.trim() ? input.value.trim() : undefined;
}

/** Ask for the token until it is right. */
export async function login() {
  if ($("dialog").open) return;
  const input = h("input", { type: "password", id: "token", autocomplete: "off", "aria-label": "Token" }), wrong = h("p.error");
  const tryIt = async () => {
    try { await post("login", { token: input.value }); location.reload(); } catch (error) { fill(wrong, error.message); }
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); tryIt(); } });
  await show(h("h2", {}, "This review needs a token"), h("p.soft", {}, "It is part of the address that mohs review printed."), input, wrong, buttons(h("button.main", { type: "button", onclick: tryIt }, "Open")));
}

export const showKeys = () => show(h("h2", {}, "Keys"), h("dl.keys", {}, KEYS.map(([key, told]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, told)))), buttons(h("button.main", { type: "button", onclick: () => $("dialog").close() }, "Close")));
