/* The page: puts its parts together, follows the address, and turns keys and clicks into decisions. */

import { get, onLocked, post } from "./api.js";
import { chooseBulk, chooseLabel, chooseName, login, showKeys } from "./dialogs.js";
import { $, fill, h, later, name, number, visible, words } from "./dom.js";
import { createExample } from "./example.js";
import { createFacets } from "./facets.js";
import { createGrid } from "./grid.js";
import { createMapView } from "./mapview.js";
import { createPairs } from "./pairs.js";
import { createProgress } from "./progress.js";
import { createRows } from "./rows.js";
import * as state from "./state.js";

const POLL = 2500, STAY = 7000, MOST_WAITING = 20, SOUGHT = 600;
const PAGES = ["grid", "map", "pairs", "progress"];
const KEYS = { a: "accept", k: "keep", l: "change", x: "exclude", s: "skip", u: "undo", r: "redo" };
const DID = { accept: "Accepted", keep: "Kept the label of", change: "Changed", exclude: "Excluded", skip: "Skipped", clear: "Cleared" };
let about = null, by = "", recent = [];

const rows = createRows(() => { grid.draw(); counted(); });
const given = () => about;
const grid = createGrid($("grid"), { rows, about: given, onOpen: (place) => example.open(place), onPick: drawPicked });
const example = createExample($("example"), { rows, about: given, act, onMove: (row) => state.set({ row: String(row) }, { replace: true }),
  onClose: (place) => { state.set({ row: "" }, { replace: true }); if (place >= 0) grid.go(place); }, onEnd: () => tell("This was the last example of the view.") });
const facets = createFacets($("facets"), { about: given });
const pairs = createPairs($("pairs"), { about: given });
const map = createMapView($("map"), { about: given, rows, onOpen: openRow, tell });
const progress = createProgress($("progress"), { about: given, by: () => by, tell, onOpen: (card) => example.open(-1, card), onStart: () => begin() });

/* Deciding */

/* One after another: a key that is pressed while a decision is being written waits for it, and then concerns the next example. */
let queue = Promise.resolve(), waiting = 0;
function act(kind, targets = null) {
  if (waiting >= MOST_WAITING) return queue;
  waiting += 1;
  queue = queue.then(() => perform(kind, targets)).finally(() => { waiting -= 1; });
  return queue;
}

async function perform(kind, targets) {
  try {
    if (kind === "undo" || kind === "redo") { done(await post(`api/step/${kind}`, { by }), kind); return; }
    const open = example.isOpen, card = open ? example.card : rows.at(grid.cursor);
    const chosen = targets ?? (open || !grid.picked.size ? (card ? [card.row] : []) : [...grid.picked]);
    if (!chosen.length) return;
    let label = "";
    if (kind === "change") {
      label = await chooseLabel(about.classes, recent);
      if (label === undefined) return;
      recent = [label, ...recent.filter((one) => one !== label)].slice(0, 5);
    }
    const single = chosen.length === 1;
    done(await post("api/decide", { rows: chosen, decision: kind, label, by }), kind, single);
    if (!single || grid.picked.size) grid.clear();
    if (open && example.isOpen) await example.move(1);
    else if (single && !targets) grid.go(grid.cursor + 1);
  } catch (error) {
    tell(error.message, { wrong: true });
  }
}
function done(answer, kind, quiet = false) {
  if (answer.seq === rows.seq + 1) rows.seq = answer.seq;  // otherwise others have decided too: the next poll brings it
  took(answer);
  const what = answer.count === 1 ? "1 example" : `${number(answer.count)} examples`;
  if (kind === "undo" || kind === "redo") tell(`${kind === "undo" ? "Undone" : "Redone"}: ${answer.decision}, ${what}`, { redo: kind === "undo" });
  else if (!quiet) tell(`${DID[answer.decision]} ${what}`, { undo: true });
  refreshPill();
}

function took({ changed, reload }) {
  if (reload) { refreshAll(); return; }
  rows.decided(changed);
  example.changed(changed);
  grid.draw();
  if (changed.length) refreshSides();
}

const refreshSides = later(() => { facets.refresh().catch(quietly); if (page() === "progress") progress.refresh().catch(quietly); }, 300);

async function bulk() {
  const chosen = await chooseBulk(about, about.classes);
  if (!chosen) return;
  try {
    done(await post("api/decide", { ...chosen, by }), chosen.decision);
    await refreshAll();
  } catch (error) { tell(error.message, { wrong: true }); }
}

/* Showing */

const page = () => (PAGES.includes(state.value("page")) ? state.value("page") : "grid");
const quietly = (error) => { if (error.status !== 401) tell(error.message, { wrong: true }); };

function drawPage() {
  const now = page();
  document.body.dataset.page = now;
  for (const button of $("pages").children) button.setAttribute("aria-current", button.dataset.page === now ? "page" : "false");
  $("grid").hidden = now === "pairs" || now === "progress";
  for (const each of ["map", "pairs", "progress"]) $(each).hidden = now !== each;
}

async function refreshAll() {
  await Promise.all([rows.refresh().then((fresh) => { if (fresh) grid.renew(); }), facets.refresh(), refreshPage(), refreshPill()]).catch(quietly);
}

const refreshPage = () => ({ map, pairs, progress }[page()]?.refresh() ?? Promise.resolve());

async function changed(asked) {
  drawPage();
  drawTools();
  if (asked) await Promise.all([rows.refresh().then((fresh) => { if (fresh) grid.renew(); }), facets.refresh(), refreshPage()]).catch(quietly);
  else {
    grid.layout();
    await Promise.resolve(refreshPage()).catch(quietly);
  }
  if (state.value("row") && !example.isOpen) openRow(+state.value("row"));
  if (!state.value("row") && example.isOpen) example.close();
}

function drawTools() {
  const sort = state.value("sort") || "queue", down = sort.startsWith("-"), column = sort.replace(/^-/, "");
  const { roles } = about, likely = roles.chance ? "most valuable next" : "order of the table";
  fill($("sort"), h("option", { value: "queue" }, likely), about.columns.map((one) => h("option", { value: one.name, title: one.meaning }, words(visible(one.name)))));
  $("sort").value = column;
  $("turn").textContent = down ? "↓" : "↑";
  $("turn").hidden = column === "queue";
  if ($("find") !== document.activeElement) $("find").value = state.value("find");
  for (const button of document.querySelectorAll("[data-size]")) button.setAttribute("aria-pressed", String(+button.dataset.size === grid.size));
  fill($("chips"), state.filters().map(([key, value]) => h("button.chip", { type: "button", title: "Remove this filter", onclick: () => (key.startsWith("is.") ? state.toggle(key, value) : state.set({ [key]: "" })) }, chip(key, value), " ×")),
    state.filters().length > 1 ? h("button.link", { type: "button", onclick: state.clearFilters }, "clear all") : null);
}

function chip(key, value) {
  const column = key.slice(3), titles = Object.fromEntries(Object.entries(about.roles).map(([role, one]) => [one, role]));
  const told = { label: "label", suggested: "suggested", verdict: "" }[titles[column]] ?? words(column);
  if (key.startsWith("is.")) return h("bdi", {}, `${told ? `${told}: ` : ""}${name(value)}`);
  if (key.startsWith("in.")) { const [low, high] = value.split(".."); return `${words(column)} ${low && high ? `${low} to ${high}` : low ? `≥ ${low}` : `≤ ${high}`}`; }
  return { find: `“${visible(value)}”`, set: "selection", sample: `random sample of ${value}`, has: "with a suggestion", decided: { no: "open", yes: "decided", skip: "skipped", keep: "kept", accept: "accepted", change: "changed", exclude: "excluded" }[value] ?? value }[key] ?? value;
}

function counted() {
  fill($("count"), h("b", {}, number(rows.total)), ` ${rows.total === 1 ? "example" : "examples"}`);
  if (!rows.total) {
    grid.say(h("p", {}, "No example matches these filters."), state.filters().length ? h("button", { type: "button", onclick: state.clearFilters }, "Clear all filters") : "");
  }
  $("start").disabled = !rows.total;
}

function drawPicked(picked) {
  const bar = $("picked");
  bar.hidden = !picked.size;
  if (!picked.size) return;
  const button = (kind, told) => h("button", { type: "button", data: { act: kind }, onclick: () => act(kind, [...picked]) }, told);
  fill(bar, h("b", {}, `${number(picked.size)} selected`), about.roles.suggested ? button("accept", "Accept suggestions") : null, button("keep", "Keep labels"), button("change", "Set label …"), button("exclude", "Exclude"),
    h("button.quiet", { type: "button", onclick: () => grid.clear() }, "Clear"));
}

async function refreshPill() {
  const found = await get(`api/progress?by=${encodeURIComponent(by)}`);
  $("pill-text").textContent = `${number(found.flagged_done)} of ${number(found.flagged)}${found.by_verdict ? " flagged" : ""}`;
  $("pill-bar").style.setProperty("width", `${found.flagged ? (100 * found.flagged_done) / found.flagged : 0}%`);
  return found;
}

let hiding = 0;
function tell(text, { wrong = false, undo = false, redo = false } = {}) {
  const toast = $("toast");
  fill(toast, h("span", {}, text), undo ? h("button.link", { type: "button", onclick: () => act("undo") }, "Undo") : null, redo ? h("button.link", { type: "button", onclick: () => act("redo") }, "Redo") : null);
  toast.classList.toggle("wrong", wrong);
  toast.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { toast.hidden = true; }, STAY);
}

/* Going */

async function openRow(row) {
  const place = rows.placeOf(row);
  if (place >= 0) { example.open(place); return; }
  try {
    const card = await get(`api/example?row=${row}`);
    example.open(-1, card);
  } catch (error) { quietly(error); }
}

/** Open the first example of the view that nobody has decided on. */
async function begin() {
  await rows.refresh();
  grid.renew();
  for (let place = 0; place < Math.min(rows.total, SOUGHT); place++) {
    const card = await rows.need(place);
    if (!card?.decision || card.decision.decision === "skip") { example.open(place); return; }
  }
  if (rows.total > SOUGHT && !state.value("decided")) { state.set({ decided: "no" }); begin(); } else if (rows.total) example.open(0);
}

async function poll() {
  if (!document.hidden && about) {
    try {
      const found = await get(`api/changes?since=${rows.seq}`);
      if (found.seq > rows.seq) { rows.seq = found.seq; took(found); refreshPill().catch(() => {}); }
      document.body.classList.remove("offline");
    } catch (error) {
      if (error.status === 0) document.body.classList.add("offline");
    }
  }
  setTimeout(poll, POLL);
}

function theme(next) {
  const now = localStorage.getItem("mohs-review-theme") ?? "";
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const chosen = next ? (now === "dark" || (!now && dark) ? "light" : "dark") : now;
  if (next) localStorage.setItem("mohs-review-theme", chosen);
  if (chosen) document.documentElement.dataset.theme = chosen;
}

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea") || $("dialog").open;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !$("dialog").open) {
    if (example.isOpen) example.close();
    else if (event.target.closest?.("input")) event.target.blur();
    else if (grid.picked.size) grid.clear();
    return;
  }
  if (typing || (event.target.closest?.("canvas") && event.key.length > 1)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === "/") { event.preventDefault(); $("find").focus(); return; }
  if (key === "?") { showKeys(); return; }
  if (KEYS[key] && (example.isOpen || ["grid", "map"].includes(page()))) { event.preventDefault(); act(KEYS[key]); return; }
  if (example.isOpen) {
    if (key === "ArrowRight") example.move(1);
    if (key === "ArrowLeft") example.move(-1);
    return;
  }
  if (!["grid", "map"].includes(page()) || event.target.closest?.("button:not(.card *)")) return;
  if (key.startsWith("Arrow") || key === "Home" || key === "End") { event.preventDefault(); grid.move(key); }
  if (key === "Enter" && rows.total) { event.preventDefault(); example.open(grid.cursor); }
  if (key === " ") { event.preventDefault(); grid.pick(); }
});

/* Starting */

async function start() {
  theme(false);
  onLocked(login);
  if (new URLSearchParams(location.search).has("token")) {
    const rest = new URLSearchParams(location.search);
    rest.delete("token");
    history.replaceState(null, "", rest.toString() ? `?${rest}` : location.pathname);
  }
  about = await get("api/about");
  by = localStorage.getItem("mohs-review-name") || about.by;
  document.title = `${about.name} · mohs review`;
  $("name").textContent = visible(about.name);
  $("size").textContent = `${number(about.total)} examples`;
  $("who").textContent = by;
  document.body.classList.toggle("pictures", about.pictures);
  document.querySelector("[data-page=map]").hidden = !about.map;
  document.querySelector("[data-page=pairs]").hidden = !about.roles.suggested;
  if (state.empty() && about.roles.verdict) {
    const found = await refreshPill();
    if (found.flagged) state.set({ [`is.${about.roles.verdict}`]: "mislabeled" }, { replace: true });
  }
  state.onChange((asked) => { changed(asked).catch(quietly); });
  $("pages").addEventListener("click", (event) => { if (event.target.dataset.page) state.set({ page: event.target.dataset.page === "grid" ? "" : event.target.dataset.page }); });
  $("pill").addEventListener("click", () => state.set({ page: "progress" }));
  $("find").addEventListener("input", later(() => state.set({ find: $("find").value.trim() }), 250));
  $("sort").addEventListener("change", () => { const one = $("sort").value; state.set({ sort: one === "queue" ? "" : about.columns.find((each) => each.name === one).kind === "number" ? `-${one}` : one }); $("sort").blur(); });
  $("turn").addEventListener("click", () => { const sort = state.value("sort"); state.set({ sort: sort.startsWith("-") ? sort.slice(1) : `-${sort}` }); });
  $("start").addEventListener("click", () => begin().catch(quietly));
  $("bulk").addEventListener("click", () => bulk());
  $("theme").addEventListener("click", () => theme(true));
  $("help").addEventListener("click", showKeys);
  $("filters").addEventListener("click", () => document.body.classList.toggle("filtering"));
  $("facets").addEventListener("click", (event) => { if (event.target === $("facets")) document.body.classList.remove("filtering"); });
  $("who").addEventListener("click", async () => {
    const chosen = await chooseName(by);
    if (chosen) { by = chosen; localStorage.setItem("mohs-review-name", by); $("who").textContent = by; refreshPill().catch(quietly); }
  });
  for (const button of document.querySelectorAll("[data-size]")) button.addEventListener("click", () => { grid.resize(+button.dataset.size); drawTools(); });
  drawPage();
  drawTools();
  await refreshAll();
  document.body.dataset.ready = "yes";
  if (state.value("row")) openRow(+state.value("row"));
  poll();
}

start().catch((error) => { if (error.status !== 401) fill($("grid"), h("div.nothing", {}, h("p.error", {}, error.message))); });
