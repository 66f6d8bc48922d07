/* The gallery: filters, one focused card at a time (roving tabindex), keys while the focus is in it, and the decision bar. */
"use strict";
(() => {
  const { data, find, say, make, decisions } = mohs;
  const STEP = 60;
  const items = [...document.querySelectorAll("[data-card]")];
  const tabs = [...document.querySelectorAll("[data-group][aria-pressed]")];
  const card = (item) => { const [id, label, suggested] = data.cards[Number(item.dataset.card)]; return { id, label, suggested }; };
  const article = (item) => item.querySelector("article");
  const of = (item) => decisions.of(card(item).id);
  let group = tabs.find((tab) => items.some((item) => item.dataset.group === tab.dataset.group))?.dataset.group ?? "mislabeled";
  let limit = STEP, matching = [], current = null;

  const title = (item) => item.querySelector(".title").textContent;
  const describe = ([, , decision, fresh]) => ({
    accept: () => `Accepted: ${data.shown[data.classes.indexOf(fresh)]}`,
    keep: () => "Label kept",
    change: () => `Changed to ${data.shown[data.classes.indexOf(fresh)]}`,
    exclude: () => "Excluded",
  })[decision]();

  const paint = (item) => {
    const entry = of(item), line = item.querySelector(".decided");
    article(item).classList.toggle("done", Boolean(entry));
    line.hidden = !entry;
    line.textContent = entry ? describe(entry) : "";
    for (const button of item.querySelectorAll("[data-act]")) {
      if (entry?.[2] === button.dataset.act) button.setAttribute("aria-pressed", "true"); else button.removeAttribute("aria-pressed");
    }
  };

  const rove = (item) => {
    if (current) for (const part of [article(current), ...current.querySelectorAll("[data-act]")]) part.tabIndex = -1;
    current = item;
    if (item) for (const part of [article(item), ...item.querySelectorAll("[data-act]")]) part.tabIndex = 0;
  };
  const focus = (item) => {
    rove(item);
    article(item).focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  };

  const show = () => {
    matching.forEach((item, place) => { item.hidden = place >= limit; });
    const seen = Math.min(limit, matching.length);
    const all = Number(tabs.find((tab) => tab.dataset.group === group).dataset.all), here = items.filter((item) => item.dataset.group === group).length;
    const more = all > here ? `; these are the most certain of ${all.toLocaleString("en")}` : "";
    find("gallery-count").textContent = matching.length ? `Showing ${seen.toLocaleString("en")} of ${matching.length.toLocaleString("en")}${more}` : "No examples match";
    find("gallery-more").hidden = seen === matching.length;
    if (!current || current.hidden || !matching.includes(current)) rove(matching[0] ?? null);
  };
  const filter = () => {
    const chosen = find("gallery-class").value, open = find("gallery-open").checked;
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.group === group));
    matching = items.filter((item) => {
      const { label, suggested } = card(item);
      const fits = item.dataset.group === group && (chosen === "" || label === Number(chosen) || suggested === Number(chosen));
      item.hidden = true;
      return fits && !(open && of(item));
    });
    limit = STEP;
    show();
  };

  const classes = () => {
    const used = new Set(items.flatMap((item) => { const { label, suggested } = card(item); return [label, suggested]; }));
    data.shown.forEach((name, place) => { if (used.has(place)) find("gallery-class").append(make("option", name, { value: place })); });
  };

  const move = (by) => {
    const next = matching[matching.indexOf(current) + by];
    if (!next) return say(by > 0 ? "That was the last example" : "This is the first example");
    if (next.hidden) { limit += STEP; show(); }
    focus(next);
  };

  const count = () => `${decisions.size.toLocaleString("en")} decided`;
  const act = (item, decision, fresh = null, onward = false) => {
    const { id, label, suggested } = card(item);
    if (decision === "accept" && suggested === null) return say("No label is suggested for this example; press 2 to keep its label");
    if (decision === "change" && fresh === null) return choose(item, onward);
    const label_ = data.classes[label];
    const entry = [id, label_, decision, decision === "accept" ? data.classes[suggested] : decision === "change" ? data.classes[fresh] : ""];
    decisions.decide([entry]);
    say(`${title(item)}: ${describe(entry)}. ${count()}.`);
    if (onward) move(1);
  };
  const undo = () => {
    const ids = decisions.undo();
    if (!ids) return say("Nothing to undo");
    const back = ids.length === 1 ? matching.find((item) => card(item).id === ids[0] && !item.hidden) : null;
    if (back && find("cards").contains(document.activeElement)) focus(back);
    return say(`Undone for ${ids.length === 1 ? "one example" : `${ids.length.toLocaleString("en")} examples`}. ${count()}.`);
  };

  /* The dialog that asks for a new class. */
  const dialog = find("change"), list = find("change-class"), search = find("change-find");
  let asked = null;
  const options = (item) => {
    const sought = search.value.trim().toLowerCase();
    const found = [...data.shown.keys()].filter((place) => place !== card(item).label && data.shown[place].toLowerCase().includes(sought));
    list.replaceChildren(...found.slice(0, 2000).map((place) => make("option", data.shown[place], { value: place })));
    if (list.options.length) list.selectedIndex = 0;
    find("change-ok").disabled = !list.options.length;
  };
  const choose = (item, onward) => {
    asked = { item, onward };
    search.value = "";
    find("change-what").textContent = `${title(item)} is labeled ${data.shown[card(item).label]}.`;
    options(item);
    dialog.showModal();
    (data.classes.length > 8 ? search : list).focus();
  };
  const confirm = () => {
    if (list.selectedIndex < 0) return;
    const { item, onward } = asked, fresh = Number(list.value);
    dialog.close();
    act(item, "change", fresh, onward);
  };
  search.addEventListener("input", () => options(asked.item));
  dialog.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.target === search && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      list.selectedIndex = Math.max(0, Math.min(list.options.length - 1, list.selectedIndex + (event.key === "ArrowDown" ? 1 : -1)));
    } else if (event.key === "Enter" && event.target !== find("change-cancel")) { event.preventDefault(); confirm(); }
  });
  list.addEventListener("dblclick", confirm);
  find("change-cancel").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); confirm(); });
  dialog.addEventListener("close", () => { if (current && !current.hidden) focus(current); });

  const keys = {
    j: () => move(1), k: () => move(-1), ArrowRight: () => move(1), ArrowLeft: () => move(-1), u: undo,
    1: () => act(current, "accept", null, true), 2: () => act(current, "keep", null, true),
    3: () => act(current, "change", null, true), 4: () => act(current, "exclude", null, true),
  };
  const cards = find("cards");
  cards.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !current || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  cards.addEventListener("click", (event) => {
    const item = event.target.closest("[data-card]"), button = event.target.closest("[data-act]");
    if (!item) return;
    rove(item);
    if (!button) { article(item).focus({ preventScroll: true }); return; }
    const entry = of(item);
    if (entry?.[2] === button.dataset.act && entry[2] !== "change") {
      decisions.decide([[entry[0], entry[1], null, ""]]);
      say(`${title(item)}: decision removed. ${count()}.`);
    } else act(item, button.dataset.act);
  });
  cards.addEventListener("focusin", (event) => { const item = event.target.closest("[data-card]"); if (item && item !== current) rove(item); });
  tabs.forEach((tab) => tab.addEventListener("click", () => { group = tab.dataset.group; filter(); }));
  find("gallery-class").addEventListener("change", filter);
  find("gallery-open").addEventListener("change", filter);
  find("gallery-more").addEventListener("click", () => { const next = matching[limit]; limit += STEP; show(); focus(next); });

  const bulk = () => data.flagged.filter(([id, , , chance]) => chance >= Number(find("bulk-chance").value || 101) && !decisions.of(id));
  const refresh = (saved = true) => {
    items.forEach(paint);
    const ready = bulk().length;
    find("decided-count").textContent = `${decisions.size ? count() : "No decisions yet"}${saved ? "" : " (this browser cannot store them: download before you leave)"}`;
    find("bulk-accept").textContent = `Accept all ${ready.toLocaleString("en")}`;
    find("bulk-accept").disabled = !ready;
    find("undo").disabled = !decisions.undoable;
    for (const id of ["download", "forget"]) find(id).disabled = !decisions.size;
  };
  find("bulk-chance").addEventListener("input", () => refresh());
  find("bulk-accept").addEventListener("click", () => {
    const entries = bulk().map(([id, label, suggested]) => [id, data.classes[label], "accept", data.classes[suggested]]);
    decisions.decide(entries);
    say(`Accepted ${entries.length.toLocaleString("en")} suggestions. ${count()}. One undo reverts them all.`);
  });
  find("undo").addEventListener("click", undo);
  find("forget").addEventListener("click", () => { decisions.clear(); say("All decisions cleared; undo restores them."); });
  find("download").addEventListener("click", decisions.download);
  decisions.onChange(refresh);

  mohs.openCard = (place) => {
    const item = items[place];
    group = item.dataset.group;
    find("gallery-class").value = "";
    find("gallery-open").checked = false;
    filter();
    while (item.hidden) { limit += STEP; show(); }
    focus(item);
  };
  classes();
  refresh();
  filter();
})();
