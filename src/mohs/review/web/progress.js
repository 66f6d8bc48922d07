/* How far the review is, what the flags are worth, who disagrees, and what to do with the decisions. */

import { get, post } from "./api.js";
import { fill, h, name, number, title, visible } from "./dom.js";
import { face, labels } from "./grid.js";
import * as state from "./state.js";

const SAMPLE = 100, FOLLOW = 1500;
const SAID = { accept: "accepted", keep: "kept", change: "changed", exclude: "excluded", skip: "skipped" };

export function createProgress(box, { about, by, onOpen, onStart, tell }) {
  let timer = 0, again = null;

  const refresh = async () => {
    const [found, disputed] = await Promise.all([get(`api/progress?by=${encodeURIComponent(by())}`), get("api/disagreements")]);
    if (about().reaudit) again = await get("api/reaudit");
    draw(found, disputed.rows);
    if (again?.status === "running") follow();
    return found;
  };

  const follow = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      again = await get("api/reaudit").catch(() => again);
      if (box.hidden) return;
      box.querySelector("#reaudit")?.replaceWith(reaudit());
      if (again.status === "running") follow();
    }, FOLLOW);
  };

  const draw = (found, disputed) => {
    const share = found.flagged ? found.flagged_done / found.flagged : 0;
    fill(box, h("div.sheet-text", {},
      h("div.tiles", {},
        tile(found.by_verdict ? "Flagged examples decided" : "Examples decided", `${number(found.flagged_done)}`, `of ${number(found.flagged)}`, h("i.bar", {}, h("b", { style: { width: `${100 * share}%` } }))),
        tile("All decisions", number(found.decided), Object.entries(SAID).filter(([kind]) => found.counts[kind]).map(([kind, told]) => `${number(found.counts[kind])} ${told}`).join(", ") || "none yet"),
        tile("Your pace", found.pace ? Math.round(found.pace) : "–", "decisions a minute"),
        found.expected_left === null ? null : tile("Wrong labels expected among undecided examples", number(Math.round(found.expected_left)), "sum of the probabilities of open examples")),
      sample(found), reviewers(found, disputed), about().reaudit ? reaudit() : null, exporting()));
  };

  const tile = (told, value, more, extra) => h("div.tile", {}, h("p", {}, told), h("b", {}, value), h("small", {}, more), extra);

  const sample = ({ sample: found, by_verdict }) => {
    if (!by_verdict || !found.drawn) return null;
    const size = Math.min(SAMPLE, found.drawn), known = found.decided > 0;
    const at = (share) => `${(100 * share).toFixed(1)}%`;
    return h("section.panel", {}, h("h2", {}, "Are the flags right?"),
      h("p.soft", {}, `Decide on ${number(size)} flagged examples drawn at random, in their order. The share that you change or exclude is the precision of the flags, with an interval that shrinks as you go.`),
      known ? h("div.interval", { role: "img", "aria-label": `Precision ${at(found.precision)}, 95% interval ${at(found.low)} to ${at(found.high)}` }, h("i", { style: { left: at(found.low), width: at(found.high - found.low) } }), h("b", { style: { left: at(found.precision) } })) : null,
      known ? h("p.result", { id: "precision" }, h("b", {}, `${Math.round(100 * found.precision)}%`), ` of the flags are right (95% interval ${Math.round(100 * found.low)} to ${Math.round(100 * found.high)}%), from ${number(found.decided)} of ${number(size)} decided${found.skipped ? `, ${found.skipped} skipped` : ""}.`) : h("p.result", { id: "precision" }, "Nothing is decided yet."),
      h("button", { type: "button", id: "sample", onclick: () => { state.clearFilters(); state.set({ page: "grid", sample: String(size), sort: "" }); onStart(); } }, known ? "Continue the sample" : "Start the sample"));
  };

  const reviewers = (found, disputed) => (found.reviewers.length < 2 && !disputed.length ? null : h("section.panel", {}, h("h2", {}, "Reviewers"),
    h("p.tags", {}, found.reviewers.map((one) => h("span.tag.plain", {}, visible(one.name), " ", h("b", {}, number(one.decided))))),
    disputed.length ? [h("h3", {}, `${number(disputed.length)} ${disputed.length === 1 ? "example is" : "examples are"} disputed`), h("div.disputes", { id: "disputes" }, disputed.slice(0, 24).map((card) => h("button.dispute", { type: "button", onclick: () => onOpen(card), "aria-label": `Disputed: ${title(card)}` },
      face(card, about(), 160), h("div", {}, labels(card), card.opinions.map((one) => h("p", {}, h("b", {}, visible(one.by)), `: ${SAID[one.decision]}`, one.label ? [" ", h("bdi", {}, name(one.label))] : null))))))] : h("p.soft", {}, "No disagreements."),
    disputed.length ? h("button.link", { type: "button", onclick: () => { state.clearFilters(); state.set({ page: "grid", decided: "disputed" }); } }, "Show them in the grid") : null));

  const reaudit = () => {
    const running = again?.status === "running", changed = again?.changed ?? {};
    const start = async (stop) => { try { again = await post("api/reaudit", stop ? { stop: true } : {}); box.querySelector("#reaudit").replaceWith(reaudit()); follow(); } catch (error) { tell(error.message, { wrong: true }); } };
    return h("section.panel", { id: "reaudit", data: { status: again?.status ?? "idle" } }, h("h2", {}, "Audit again with these decisions"),
      h("p.soft", {}, "The models learn from your corrected labels and judge every example again, which reveals errors that others had hidden. Labels that you decided on are not flagged again, and calibrate the probabilities of the others."),
      again?.status === "done" ? h("dl.changes", {}, [["flagged", `${number(changed.flagged_before)} → ${number(changed.flagged_after)}`], ["newly flagged", number(changed.new)], ["no longer flagged", number(changed.cleared)], ["flagged against your decision", number(changed.reopened)],
        ["estimated wrong labels", changed.noise_before === null || changed.noise_after === null ? "–" : `${(100 * changed.noise_before).toFixed(1)}% → ${(100 * changed.noise_after).toFixed(1)}%`]].map(([told, value]) => h("div", {}, h("dt", {}, told), h("dd", {}, value)))) : null,
      again?.status === "done" && changed.checked ? h("p.soft", {}, changed.checked) : null,
      again?.status === "done" ? h("p", {}, "Review it: ", h("code", {}, changed.review)) : null,
      again?.lines?.length && again.status !== "done" ? h("pre", {}, again.lines.slice(-6).map((line) => visible(line)).join("\n")) : null,
      again?.status === "failed" ? h("p.error", {}, "The audit failed.") : null,
      h("div.buttons.start", {}, running ? h("button", { type: "button", onclick: () => start(true) }, "Stop") : h("button", { type: "button", id: "reaudit-start", onclick: () => start(false) }, again?.status === "idle" || !again ? "Start" : "Start again"),
        running ? h("span.soft", {}, h("i.spin"), " running") : null,
        changed.new_set ? h("button", { type: "button", onclick: () => { state.clearFilters(); state.set({ page: "grid", set: changed.new_set }); } }, `Show the ${number(changed.new)} newly flagged`) : null));
  };

  const exporting = () => h("section.panel", {}, h("h2", {}, "Use the decisions"),
    h("p.soft", {}, "Every decision is in ", h("code", {}, about().log), ", on the disk before the page shows it. The files below are made from it at any time."),
    about().apply ? h("p", {}, h("code.line", {}, about().apply)) : null,
    h("div.buttons.start", {}, [["csv", "Labels as CSV"], ["parquet", "Labels as Parquet"], ["json", "Labels as JSON (COCO-like)"], ["decisions", "decisions.csv"]].map(([kind, told]) => h("a.button", { href: `api/export/${kind}`, download: "" }, told))));

  return { refresh };
}
