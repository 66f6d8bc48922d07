/* The rows of the current view: fetched page by page, kept as they were when the view was made, with decisions kept up to date. */

import { get } from "./api.js";
import * as state from "./state.js";

const PAGE = 120, KEPT = 40;

export function createRows(onLoad) {
  let view = "", total = 0, round = 0, seq = 0;
  const pages = new Map(), waiting = new Map(), cards = new Map();

  const keep = (page, rows) => {
    pages.delete(page);
    pages.set(page, rows);
    for (const card of rows) cards.set(card.row, card);
    if (pages.size > KEPT) {
      const [oldest, gone] = pages.entries().next().value;
      pages.delete(oldest);
      for (const card of gone) if (![...pages.values()].some((rows) => rows.includes(card))) cards.delete(card.row);
    }
  };

  const fetchPage = (page) => {
    if (waiting.has(page)) return waiting.get(page);
    const asked = round;
    const work = (async () => {
      try {
        const found = await get(`api/rows?view=${view}&from=${page * PAGE}&count=${PAGE}`);
        if (asked === round) { keep(page, found.rows); onLoad(); }
      } catch (error) {
        if (error.status === 410) await self.refresh();
        else if (asked === round) throw error;
      } finally {
        if (asked === round) waiting.delete(page);
      }
    })();
    waiting.set(page, work);
    return work;
  };

  const self = {
    get total() { return total; },
    get seq() { return seq; },
    get view() { return view; },
    set seq(value) { seq = Math.max(seq, value); },

    /** Ask for the view that the address describes. */
    async refresh() {
      const asked = ++round;
      const found = await get(`api/view?${state.query()}`);
      if (asked !== round) return false;
      ({ view, total } = found);
      seq = Math.max(seq, found.seq);
      pages.clear();
      waiting.clear();
      cards.clear();
      keep(0, found.rows);
      onLoad();
      return true;
    },

    /** The card at a position, or undefined while its page is on the way. */
    at(place) {
      const page = pages.get(Math.floor(place / PAGE));
      if (!page && place >= 0 && place < total) fetchPage(Math.floor(place / PAGE)).catch(() => {});
      return page?.[place % PAGE];
    },

    async need(place) {
      if (place < 0 || place >= total) return undefined;
      if (!pages.has(Math.floor(place / PAGE))) await fetchPage(Math.floor(place / PAGE));
      return self.at(place);
    },

    /** The position of a row among the pages that are here; -1 if it is not. */
    placeOf(row) {
      for (const [page, rows] of pages) {
        const place = rows.findIndex((card) => card.row === row);
        if (place >= 0) return page * PAGE + place;
      }
      return -1;
    },

    card: (row) => cards.get(row),

    /** Take over decisions: [{row, decision}]. */
    decided(changed) {
      for (const { row, decision } of changed) {
        const card = cards.get(row);
        if (card) card.decision = decision;
      }
    },
  };
  return self;
}
